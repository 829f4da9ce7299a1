import ctypes
import glob
import os

_kernels = ctypes.CDLL(glob.glob(os.path.join(os.path.dirname(__file__), "tinyops_kernels*.so"))[0])
scale = _kernels.orch_scale
