/* A library whose function has a name like the driver's. */
int cuFileOpen(void) {
    return 0;
}
