#include "sharing/ipc_imports.h"

#include <stdatomic.h>

#include "base/array.h"
#include "base/hold.h"
#include "sharing/ipc_client.h"

/* An allocation that the program has opened, so many times. */
struct opening {
    uint64_t address; /* here */
    uint64_t bytes;
    uint64_t id;
    uint64_t import_address; /* of the block in which it lies */
    uint32_t count;
};

/* Guarded by LOCK_IPC. */
static struct import *imports;
static size_t imports_used, imports_room;
static struct opening *openings;
static size_t openings_used, openings_room;
static _Atomic size_t imports_there; /* so that who imports nothing takes no lock */

static struct import *import_of(const struct ipc_handle *handle, uint64_t generation) {
    for (size_t i = 0; i < imports_used; i++)
        if (imports[i].server == handle->server && imports[i].block == handle->block &&
            imports[i].generation == generation)
            return &imports[i];
    return NULL;
}

static struct import *import_around(uint64_t address) {
    for (size_t i = 0; i < imports_used; i++)
        if (address >= imports[i].address && address - imports[i].address < imports[i].bytes)
            return &imports[i];
    return NULL;
}

static struct opening *opening_at(uint64_t address) {
    for (size_t i = 0; i < openings_used; i++)
        if (openings[i].address == address) return &openings[i];
    return NULL;
}

static bool open_in(struct import *import, const struct ipc_handle *handle, uint64_t *address) {
    if (handle->offset >= import->bytes || handle->bytes > import->bytes - handle->offset)
        return false;
    *address = import->address + handle->offset;
    struct opening *opening = opening_at(*address);
    if (opening == NULL) {
        if (!ARRAY_MAKE_ROOM(openings, openings_used, 1, openings_room)) return false;
        opening = &openings[openings_used++];
        *opening = (struct opening){
            .address = *address,
            .bytes = handle->bytes,
            .id = blocks_next_id(),
            .import_address = import->address,
        };
        import->openings++;
    }
    opening->count++;
    return true;
}

bool imports_reopen(const struct ipc_handle *handle, uint64_t generation, uint64_t *address) {
    if (atomic_load(&imports_there) == 0) return false;
    HOLD(LOCK_IPC);
    struct import *import = import_of(handle, generation);
    return import != NULL && open_in(import, handle, address);
}

static bool enter(const struct import *mapped, const struct ipc_handle *handle, uint64_t *address) {
    if (!ARRAY_MAKE_ROOM(imports, imports_used, 1, imports_room)) return false;
    imports[imports_used] = *mapped;
    imports[imports_used].openings = 0;
    if (!open_in(&imports[imports_used], handle, address)) return false;
    atomic_store(&imports_there, ++imports_used);
    return true;
}

enum imports_answer imports_add(const struct import *mapped, const struct ipc_handle *handle,
                                uint64_t *address) {
    HOLD(LOCK_IPC);
    struct import *there = import_of(handle, mapped->generation);
    const bool opened =
        there != NULL ? open_in(there, handle, address) : enter(mapped, handle, address);
    if (!opened) return IMPORTS_NO_ROOM;
    return there != NULL ? IMPORTS_THERE : IMPORTS_ADDED;
}

bool imports_close(uint64_t address) {
    if (atomic_load(&imports_there) == 0) return false;
    HOLD(LOCK_IPC);
    struct opening *opening = opening_at(address);
    if (opening != NULL && --opening->count == 0) {
        import_around(address)->openings--;
        *opening = openings[--openings_used];
    }
    return opening != NULL;
}

/* With all that is open in it. */
static void take(struct import *import, struct import *taken) {
    *taken = *import;
    *import = imports[--imports_used];
    atomic_store(&imports_there, imports_used);
    for (size_t i = 0; i < openings_used;) {
        if (openings[i].import_address == taken->address)
            openings[i] = openings[--openings_used];
        else
            i++;
    }
}

bool imports_take(uint64_t generation, struct import *taken) {
    if (atomic_load(&imports_there) == 0) return false;
    HOLD(LOCK_IPC);
    for (size_t i = 0; i < imports_used; i++) {
        if (generation == 0 ? imports[i].openings > 0 : imports[i].generation != generation)
            continue;
        take(&imports[i], taken);
        return true;
    }
    return false;
}

bool imports_put_back(const struct import *unused) {
    HOLD(LOCK_IPC);
    if (!ARRAY_MAKE_ROOM(imports, imports_used, 1, imports_room)) return false;
    imports[imports_used++] = *unused;
    atomic_store(&imports_there, imports_used);
    return true;
}

bool imports_find(uint64_t address, struct allocated *found) {
    if (atomic_load_explicit(&imports_there, memory_order_acquire) == 0) return false;
    HOLD(LOCK_IPC);
    const struct import *import = import_around(address);
    for (size_t i = 0; import != NULL && i < openings_used; i++) {
        const struct opening *opening = &openings[i];
        if (address < opening->address || address - opening->address >= opening->bytes) continue;
        *found = (struct allocated){
            .address = opening->address,
            .bytes = opening->bytes,
            .id = opening->id,
            .context = import->context,
            .generation = import->generation,
            .device = import->device,
            .block_address = import->address,
            .block_bytes = import->bytes,
        };
        return true;
    }
    return false;
}

bool imports_cover(uint64_t address) {
    if (atomic_load_explicit(&imports_there, memory_order_acquire) == 0) return false;
    HOLD(LOCK_IPC);
    return import_around(address) != NULL;
}

bool imports_keep(uint64_t address) {
    HOLD(LOCK_IPC);
    const struct import *import = import_around(address);
    return import != NULL && ipc_client_tell(&import->connection, IPC_WORD_KEEP);
}

/* The child has nothing of it, and its copies of the connections would outlive the parent's. */
void imports_after_fork(void) {
    for (size_t i = 0; i < imports_used; i++)
        descriptor_close(&imports[i].connection);
    imports_used = openings_used = 0;
    atomic_store(&imports_there, 0);
}
