import os

os.environ["CUDA_VISIBLE_DEVICES"] = "0"  # expect: PJ111
os.environ.setdefault("NCCL_DEBUG", "INFO")  # expect: PJ111
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"  # expect: PJ111
os.environ["TOKENIZERS_PARALLELISM"] = "false"
