/* More streams than a thread's window has rings, made, used and destroyed in every round: the ring
 * of a destroyed stream has to make way for that of a new one. Says "right" where the memory holds
 * what the last round wrote. */
#include "gpu.h"

#define STREAMS 24
#define BYTES (1u << 16)

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 50;
    gpu_open(0);
    CUdeviceptr memory;
    CUstream streams[STREAMS];
    unsigned char byte = 0;
    check(cuMemAlloc(&memory, BYTES), "cuMemAlloc");
    for (int round = 0; round < rounds; round++) {
        /* One less each time, so that handles come back in another order. */
        int used = STREAMS - round % 7;
        for (int i = 0; i < used; i++)
            check(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING), "cuStreamCreate");
        for (int i = 0; i < used; i++)
            check(cuMemsetD8Async(memory, (unsigned char)round, BYTES, streams[i]),
                  "cuMemsetD8Async");
        for (int i = used - 1; i >= 0; i--) {
            check(cuStreamSynchronize(streams[i]), "cuStreamSynchronize");
            check(cuStreamDestroy(streams[i]), "cuStreamDestroy");
        }
    }
    check(cuMemcpyDtoH(&byte, memory, 1), "cuMemcpyDtoH");
    puts(byte == (unsigned char)(rounds - 1) ? "right" : "wrong");
    return 0;
}
