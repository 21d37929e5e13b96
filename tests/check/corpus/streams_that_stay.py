import torch

side = torch.cuda.Stream()  # expect: PJ402
graph = torch.cuda.CUDAGraph()  # expect: PJ404
with torch.cuda.stream(side):  # expect: PJ402
    pass
with torch.cuda.graph(graph):  # expect: PJ404
    pass
