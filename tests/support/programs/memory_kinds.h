/* Further kinds of device memory that memory_tenant.c holds, each in a slot of its own. */
#ifndef TESTS_MEMORY_KINDS_H
#define TESTS_MEMORY_KINDS_H

#define ROW_BYTES ((uint64_t)4096)
#define HANDLE_WORDS (CU_IPC_HANDLE_SIZE / sizeof(uint64_t))

static CUstream working_stream(void) {
    return stream_of(1);
}

static CUresult allocate_pitched(int slot, uint64_t bytes) {
    size_t pitch = 0;
    const uint64_t rows = (bytes + ROW_BYTES - 1) / ROW_BYTES;
    CUresult result = cuMemAllocPitch(&slots[slot].address, &pitch, ROW_BYTES - 96, rows, 4);
    if (!result && pitch * rows < bytes) return CUDA_ERROR_UNKNOWN;
    slots[slot].bytes = result ? 0 : bytes;
    return result;
}

/* From a pool that the program has made itself. */
static CUresult allocate_from_own_pool(int slot, uint64_t bytes) {
    static CUmemoryPool pool;
    CUresult result = CUDA_SUCCESS;
    if (pool == NULL) {
        const CUmemPoolProps properties = {
            .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = gpu.device},
        };
        result = cuMemPoolCreate(&pool, &properties);
    }
    if (!result)
        result = cuMemAllocFromPoolAsync(&slots[slot].address, bytes, pool, stream_of(slot));
    if (!result) result = cuStreamSynchronize(stream_of(slot));
    slots[slot].bytes = result ? 0 : bytes;
    slots[slot].pooled = !result;
    return result;
}

/* ---- arrays: the host alone can look at all of one ---- */

static CUresult allocate_array(int slot, uint64_t bytes) {
    const CUDA_ARRAY_DESCRIPTOR shape = {.Width = ROW_BYTES / 4,
                                         .Height = (bytes + ROW_BYTES - 1) / ROW_BYTES,
                                         .Format = CU_AD_FORMAT_UNSIGNED_INT32,
                                         .NumChannels = 1};
    const CUresult result = cuArrayCreate(&slots[slot].array, &shape);
    slots[slot].bytes = result ? 0 : bytes;
    return result;
}

static CUresult copy_array(int slot, void *host, bool inward) {
    const CUmemorytype here = CU_MEMORYTYPE_HOST, there = CU_MEMORYTYPE_ARRAY;
    const CUDA_MEMCPY2D copy = {
        .srcMemoryType = inward ? here : there,
        .srcHost = host,
        .srcArray = slots[slot].array,
        .srcPitch = ROW_BYTES,
        .dstMemoryType = inward ? there : here,
        .dstHost = host,
        .dstArray = slots[slot].array,
        .dstPitch = ROW_BYTES,
        .WidthInBytes = ROW_BYTES,
        .Height = (slots[slot].bytes + ROW_BYTES - 1) / ROW_BYTES,
    };
    return cuMemcpy2D(&copy);
}

static uint32_t *host_copy_of(int slot) {
    uint32_t *words = calloc(1, slots[slot].bytes + ROW_BYTES);
    if (words == NULL) exit(4);
    return words;
}

static CUresult fill_array(int slot, uint64_t seed) {
    uint32_t *words = host_copy_of(slot);
    for (uint64_t i = 0; i < slots[slot].bytes / 4; i++)
        words[i] = block_value(seed, i / (BLOCK_BYTES / 4));
    const CUresult result = copy_array(slot, words, true);
    free(words);
    return result;
}

static CUresult checksum_array(int slot, uint64_t *sum) {
    uint32_t *words = host_copy_of(slot);
    const CUresult result = copy_array(slot, words, false);
    *sum = 0;
    for (uint64_t i = 0; i < slots[slot].bytes / 4; i++)
        *sum += words[i] * (2 * i + 1);
    free(words);
    return result;
}

static CUresult release_array(int slot) {
    const CUarray array = slots[slot].array;
    slots[slot].array = NULL;
    slots[slot].bytes = 0;
    return cuArrayDestroy(array);
}

/* ---- memory of graphs ---- */

static CUresult end_graph(CUresult captured, CUgraphExec *ready) {
    CUgraph graph = NULL;
    CUresult result = cuStreamEndCapture(working_stream(), &graph);
    if (captured) result = captured;
    if (!result) result = cuGraphInstantiate(ready, graph, 0);
    if (graph != NULL) cuGraphDestroy(graph);
    return result;
}

static CUresult run_graph(CUgraphExec graph) {
    const CUresult result = cuGraphLaunch(graph, working_stream());
    return result ? result : cuStreamSynchronize(working_stream());
}

/* It is made by a launch of the graph, and lives on. */
static CUresult allocate_in_graph(int slot, uint64_t bytes) {
    CUgraphExec graph = NULL;
    CUresult result = cuStreamBeginCapture(working_stream(), CU_STREAM_CAPTURE_MODE_RELAXED);
    if (result) return result;
    result = end_graph(cuMemAllocAsync(&slots[slot].address, bytes, working_stream()), &graph);
    if (!result) result = run_graph(graph);
    if (result && graph != NULL) cuGraphExecDestroy(graph);
    slots[slot].bytes = result ? 0 : bytes;
    slots[slot].graph = result ? NULL : graph;
    return result;
}

static CUresult release_in_graph(int slot) {
    CUresult result = cuMemFreeAsync(slots[slot].address, working_stream());
    if (!result) result = cuStreamSynchronize(working_stream());
    const CUresult ended = cuGraphExecDestroy(slots[slot].graph);
    slots[slot].bytes = 0;
    slots[slot].graph = NULL;
    return result ? result : ended;
}

static CUresult capture_work(uint64_t bytes, uint64_t seed) {
    CUdeviceptr address;
    CUresult result = cuMemAllocAsync(&address, bytes, working_stream());
    for (uint64_t at = 0; at < bytes && !result; at += BLOCK_BYTES) {
        CUdeviceptr place = address + at;
        uint32_t value = block_value(seed, at / BLOCK_BYTES);
        uint64_t words = (bytes - at < BLOCK_BYTES ? bytes - at : BLOCK_BYTES) / 4;
        void *arguments[] = {&place, &value, &words};
        result =
            cuLaunchKernel(gpu.fill, 64, 1, 1, 256, 1, 1, 0, working_stream(), arguments, NULL);
    }
    uint64_t words = bytes / 4;
    void *arguments[] = {&gpu.sum_address, &address, &words};
    if (!result)
        result =
            cuLaunchKernel(gpu.checksum, 1, 1, 1, 1024, 1, 1, 0, working_stream(), arguments, NULL);
    return result ? result : cuMemFreeAsync(address, working_stream());
}

/* A graph with memory of its own, which it fills, sums up and frees, is launched twice. */
static CUresult replay(uint64_t bytes, uint64_t seed, char *found, size_t size) {
    CUgraphExec graph = NULL;
    CUresult result = cuStreamBeginCapture(working_stream(), CU_STREAM_CAPTURE_MODE_RELAXED);
    if (result) return result;
    result = end_graph(capture_work(bytes, seed), &graph);
    for (int i = 0; i < 2 && !result; i++) {
        *gpu.sum = 0;
        result = run_graph(graph);
        snprintf(found, size, " %" PRIu64, *gpu.sum);
    }
    if (graph != NULL) cuGraphExecDestroy(graph);
    return result;
}

/* ---- memory of two processes ---- */

static CUresult share(int slot, char *found, size_t size) {
    CUipcMemHandle handle;
    uint64_t words[HANDLE_WORDS];
    const CUresult result = cuIpcGetMemHandle(&handle, slots[slot].address);
    memcpy(words, &handle, sizeof(words));
    size_t length = 0;
    for (size_t i = 0; i < HANDLE_WORDS && !result && length < size; i++)
        length += (size_t)snprintf(found + length, size - length, " %" PRIu64, words[i]);
    return result;
}

static CUresult attach(int slot, uint64_t bytes, const uint64_t *words) {
    CUipcMemHandle handle;
    memcpy(&handle, words, sizeof(handle));
    const CUresult result =
        cuIpcOpenMemHandle(&slots[slot].address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    slots[slot].bytes = result ? 0 : bytes;
    slots[slot].attached = !result;
    return result;
}

static CUresult detach(int slot) {
    slots[slot].bytes = 0;
    slots[slot].attached = false;
    return cuIpcCloseMemHandle(slots[slot].address);
}

/* ---- memory that is given away by its handle ---- */

/* What somebody sees who imports it; the descriptor is closed again. */
static CUresult give_away(int slot, char *found, size_t size) {
    int descriptor = -1;
    CUmemGenericAllocationHandle imported;
    CUdeviceptr there;
    uint64_t sum = 0, words = slots[slot].bytes / 4;
    CUresult result = cuMemExportToShareableHandle(&descriptor, slots[slot].handle,
                                                   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (result) return result;
    result = cuMemImportFromShareableHandle(&imported, (void *)(uintptr_t)descriptor,
                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    close(descriptor);
    if (result) return result;
    result = map_at_fresh_addresses(&there, mapped_bytes(slots[slot].bytes), imported);
    if (!result) {
        void *arguments[] = {&gpu.sum_address, &there, &words};
        result = cuLaunchKernel(gpu.checksum, 1, 1, 1, 1024, 1, 1, 0, NULL, arguments, NULL);
        if (!result) result = cuCtxSynchronize();
        sum = *gpu.sum;
        const CUresult ended = unmap(there, slots[slot].bytes);
        if (!result) result = ended;
    }
    snprintf(found, size, " %" PRIu64, sum);
    const CUresult released = cuMemRelease(imported);
    return result ? result : released;
}

/* ---- by their commands ---- */

static CUresult work_with_kinds(const char *command, const uint64_t *a, char *found, size_t size,
                                bool *known) {
    const int slot = (int)(a[0] % SLOTS);
    *known = true;
    if (strcmp(command, "pitch") == 0) return allocate_pitched(slot, a[1]);
    if (strcmp(command, "own_pool") == 0) return allocate_from_own_pool(slot, a[1]);
    if (strcmp(command, "array") == 0) return allocate_array(slot, a[1]);
    if (strcmp(command, "graph") == 0) return allocate_in_graph(slot, a[1]);
    if (strcmp(command, "replay") == 0) return replay(a[0], a[1], found, size);
    if (strcmp(command, "share") == 0) return share(slot, found, size);
    if (strcmp(command, "attach") == 0) return attach(slot, a[1], a + 2);
    if (strcmp(command, "give") == 0) return give_away(slot, found, size);
    *known = false;
    return CUDA_SUCCESS;
}

#endif
