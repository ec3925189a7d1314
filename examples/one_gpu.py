"""Train on one GPU, or on the CPU without one: python examples/one_gpu.py"""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

torch.manual_seed(0)
images = torch.rand(1024, 1, 28, 28)
labels = (images.flatten(1) @ torch.randn(784, 10)).argmax(dim=1)
data = TensorDataset(images, labels)
net = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
net.to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

order = torch.Generator()
sampler = RandomSampler(data, generator=order)
loader = DataLoader(data, 64, sampler=sampler, pin_memory=device.type == "cuda")
for epoch in range(3):
    order.manual_seed(epoch)
    for X, y in loader:
        X, y = X.to(device, non_blocking=True), y.to(device, non_blocking=True)
        optimizer.zero_grad()
        loss = F.cross_entropy(net(X), y)
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.3f} on the last batch")

torch.save(net.state_dict(), "one_gpu.pt")
