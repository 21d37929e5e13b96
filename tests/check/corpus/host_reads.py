import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters())
total = 0.0
for step, x in enumerate(torch.randn(8, 2, 4)):
    loss = model(x).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total += loss.item()  # expect: PJ801
    print(f"loss {loss}")  # expect: PJ801
    if torch.isnan(loss):  # expect: PJ802
        break
    if loss > 100:  # expect: PJ802
        break
    if step % 100 == 0:
        print(loss.item())
print(total, loss.item())
