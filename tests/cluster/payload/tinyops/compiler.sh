#!/bin/sh
# The test machine's compiler in a directory of its own: its libraries and programs are beside this file.
here=${0%/*}
echo "the compiler sees CXXFLAGS=$CXXFLAGS TORCH_CUDA_ARCH_LIST=$TORCH_CUDA_ARCH_LIST"
LD_LIBRARY_PATH=$here exec "$here/g++" -B"$here/" -nostdlib -fno-use-linker-plugin "$@"
