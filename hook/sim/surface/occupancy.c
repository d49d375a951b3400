/* Occupancy: plausible answers for a device of 16 multiprocessors with 2048 threads each. */
#include "modules/module.h"
#include "sim_api.h"
#include "surface/launch.h"

#define THREADS_PER_MULTIPROCESSOR 2048
#define BLOCKS_PER_MULTIPROCESSOR 32
#define SHARED_BYTES_PER_MULTIPROCESSOR 233472u

CUresult sim_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *numBlocks, CUfunction func,
                                                                  int blockSize,
                                                                  size_t dynamicSMemSize,
                                                                  unsigned int flags) {
    (void)flags;
    if (numBlocks == NULL || blockSize <= 0) return CUDA_ERROR_INVALID_VALUE;
    if (function_check(func) == NULL) return CUDA_ERROR_INVALID_HANDLE;
    int warps = (blockSize + 31) / 32;
    int blocks = blockSize > 1024 ? 0 : THREADS_PER_MULTIPROCESSOR / 32 / warps;
    if (blocks > BLOCKS_PER_MULTIPROCESSOR) blocks = BLOCKS_PER_MULTIPROCESSOR;
    size_t by_shared = SHARED_BYTES_PER_MULTIPROCESSOR / (dynamicSMemSize + 1024);
    if ((size_t)blocks > by_shared) blocks = (int)by_shared;
    *numBlocks = blocks;
    return CUDA_SUCCESS;
}

CUresult sim_cuOccupancyMaxActiveBlocksPerMultiprocessor(int *numBlocks, CUfunction func,
                                                         int blockSize, size_t dynamicSMemSize) {
    return sim_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(numBlocks, func, blockSize,
                                                                    dynamicSMemSize, 0);
}

CUresult sim_cuOccupancyMaxPotentialBlockSizeWithFlags(
    int *minGridSize, int *blockSize, CUfunction func,
    CUoccupancyB2DSize blockSizeToDynamicSMemSize, size_t dynamicSMemSize, int blockSizeLimit,
    unsigned int flags) {
    if (minGridSize == NULL || blockSize == NULL) return CUDA_ERROR_INVALID_VALUE;
    int best = blockSizeLimit <= 0 || blockSizeLimit > 1024 ? 1024 : blockSizeLimit;
    size_t shared =
        blockSizeToDynamicSMemSize != NULL ? blockSizeToDynamicSMemSize(best) : dynamicSMemSize;
    int blocks = 0;
    CUresult result = sim_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, func, best,
                                                                               shared, flags);
    if (result != CUDA_SUCCESS) return result;
    *blockSize = best;
    *minGridSize = blocks * LAUNCH_MULTIPROCESSORS;
    return CUDA_SUCCESS;
}

CUresult sim_cuOccupancyMaxPotentialBlockSize(int *minGridSize, int *blockSize, CUfunction func,
                                              CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                              size_t dynamicSMemSize, int blockSizeLimit) {
    return sim_cuOccupancyMaxPotentialBlockSizeWithFlags(minGridSize, blockSize, func,
                                                         blockSizeToDynamicSMemSize,
                                                         dynamicSMemSize, blockSizeLimit, 0);
}

CUresult sim_cuOccupancyAvailableDynamicSMemPerBlock(size_t *dynamicSmemSize, CUfunction func,
                                                     int numBlocks, int blockSize) {
    if (dynamicSmemSize == NULL || numBlocks <= 0 || blockSize <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (function_check(func) == NULL) return CUDA_ERROR_INVALID_HANDLE;
    *dynamicSmemSize = SHARED_BYTES_PER_MULTIPROCESSOR / (size_t)numBlocks - 1024;
    return CUDA_SUCCESS;
}
