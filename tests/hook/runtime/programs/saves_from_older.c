/* A copy from a handler of exit that runs after the hook's own, with a driver that can do little
 * else. */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>

static void save(void) {
    char saved[4];
    printf("saved %d\n", (int)cuMemcpyDtoH(saved, 4096, sizeof saved));
    fflush(stdout);
}

int main(void) {
    atexit(save); /* before the hook's own handler, so it runs after that */
    return (int)cuInit(0);
}
