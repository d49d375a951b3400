/* Ends while its turn is on its way back, with a library's clean-up that launches once more. */
#include "gpu.h"

static struct gpu gpu;

static void clean_up(void) {
    printf("cleaned %d\n", (int)gpu_spin(&gpu, NULL, 1000));
    fflush(stdout);
}

int main(int count, char **arguments) {
    if (count != 2) return 2;
    atexit(clean_up); /* before the hook's own handler, so it runs after that */
    gpu = gpu_open(0);
    check(gpu_spin(&gpu, NULL, strtoull(arguments[1], NULL, 10)), "launch");
    printf("launched\n");
    fflush(stdout);
    while (getchar() != EOF)
        continue;
    return 0;
}
