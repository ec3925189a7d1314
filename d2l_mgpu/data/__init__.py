"""Images to train on: Fashion-MNIST (or MNIST) where it can be had, drawn garments
where not.

Where the images come from, unless ``source`` or the variable ``D2L_MGPU_SOURCE`` says
otherwise:

1. the folder that the variable ``D2L_MGPU_DATA`` names, as
   ``<folder>/FashionMNIST/raw``; it is an error if they are not there;
2. the usual folder, ``~/.cache/d2l_mgpu``;
3. a download into the usual folder;
4. the drawings of :mod:`d2l_mgpu.data.garments`, for Fashion-MNIST only.

``'auto'`` tries all four in this order, ``'real'`` the first three, ``'generated'``
takes the last and neither reads nor downloads. One printed line says what was loaded
and from where.
"""

from d2l_mgpu.data.fashion_mnist import FASHION_MNIST_LABELS, load_data_fashion_mnist
from d2l_mgpu.data.images import Batches, DataIter, DeviceBatches, Images, on_device
from d2l_mgpu.data.real_images import DownloadError

__all__ = [
    "FASHION_MNIST_LABELS",
    "Batches",
    "DataIter",
    "DeviceBatches",
    "DownloadError",
    "Images",
    "load_data_fashion_mnist",
    "on_device",
]
