"""Train as one_gpu.py does, on k GPUs with a process for each. For k = 2:

    torchrun --standalone --nproc-per-node=2 examples/ddp.py

Without GPUs the processes share the CPU. In each step a process takes 64 / k examples.
Together they are the 64 that one GPU takes, so choose a k that divides 64.
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

if torch.cuda.is_available():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
k = dist.get_world_size()

torch.manual_seed(0)
images = torch.rand(1024, 1, 28, 28)
labels = (images.flatten(1) @ torch.randn(784, 10)).argmax(dim=1)
data = TensorDataset(images, labels)
net = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
net.to(device)
replica = DistributedDataParallel(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

sampler = DistributedSampler(data)
loader = DataLoader(data, 64 // k, sampler=sampler, pin_memory=device.type == "cuda")
for epoch in range(3):
    sampler.set_epoch(epoch)
    for X, y in loader:
        X, y = X.to(device, non_blocking=True), y.to(device, non_blocking=True)
        optimizer.zero_grad()
        loss = F.cross_entropy(replica(X), y)
        loss.backward()
        optimizer.step()
    if dist.get_rank() == 0:
        print(f"epoch {epoch}: loss {loss.item():.3f} on the last shard")

if dist.get_rank() == 0:
    torch.save(net.state_dict(), "ddp.pt")
dist.destroy_process_group()
