import torch
print "hello"  # expect: PJ001
