import numpy as np


class Fake:
    def is_available(self):
        return True


def run(torch, cuda):
    if cuda.is_available():
        return torch.load("x")
    return torch.cuda.synchronize()


cuda = Fake()
value = 1 if cuda.is_available() else 2
ids = np.unique(np.array([1, 2]))
