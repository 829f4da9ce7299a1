# A small extension instead of DeepSpeed: like DeepSpeed's, its build reads its options from exported variables.
import os

from setuptools import Extension, setup

arch = os.environ["TORCH_CUDA_ARCH_LIST"]
print(f"setup.py sees TORCH_CUDA_ARCH_LIST={arch} DS_BUILD_CPU_ADAM={os.environ['DS_BUILD_CPU_ADAM']}", flush=True)
kernels = Extension("tinyops_kernels", ["kernels.cpp"], define_macros=[("ARCH", arch.replace(".", ""))])
setup(name="tinyops", version="1.0", py_modules=["tinyops"], ext_modules=[kernels])
