"""Train a network of your own on a coreset, in a plain PyTorch loop.

python examples/plain_loop.py
"""

import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader

import pseudocoreset as pc

torch.manual_seed(0)
coreset = pc.load("digits", ipc=10)
loader = DataLoader(coreset.as_dataset(), batch_size=50, shuffle=True)

network = torch.nn.Sequential(
    torch.nn.Conv2d(1, 32, 3, padding=1),
    torch.nn.ReLU(),
    torch.nn.MaxPool2d(2),
    torch.nn.Conv2d(32, 32, 3, padding=1),
    torch.nn.ReLU(),
    torch.nn.Flatten(),
    torch.nn.Linear(32 * 4 * 4, 10),
)
optimizer = torch.optim.Adam(network.parameters(), lr=0.002)
for _ in range(60):
    for images, labels in loader:  # scaled images; classes, or a row of probabilities each
        loss = F.cross_entropy(network(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

test = pc.load_data("digits").test
with torch.no_grad():
    logits = network(coreset.scaling.apply(test.inputs))  # scaled as the coreset is
accuracy = (logits.argmax(1) == test.targets).float().mean()
print(f"{len(coreset)} synthetic images: accuracy {accuracy:.3f} on {len(test)} real ones")
