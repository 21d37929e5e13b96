from torch import *

x = cuda.FloatTensor(2)  # expect: PJ108
