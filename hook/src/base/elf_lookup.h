/* Finds a function in an object that the process has loaded, by reading the object's own symbol
 * table. It needs neither dlsym (which we interpose) nor dlvsym (whose symbol version differs
 * between C libraries), so the hook asks the C library for nothing newer than dl_iterate_phdr. */
#pragma once

/* The address of the function `name` that the object with this file name (without its folder)
 * defines; NULL where the object is not loaded or does not define it. */
void *elf_lookup(const char *object_file_name, const char *name)
    __attribute__((visibility("hidden")));
