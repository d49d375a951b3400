#include "base/elf_lookup.h"

#include <link.h>
#include <stdint.h>
#include <string.h>

struct query {
    const char *object_file_name;
    const char *name;
    void *address; /* the answer */
};

/* The tables of one loaded object that a lookup reads. */
struct symbol_tables {
    const ElfW(Sym) * symbols;
    const char *strings;
    const uint32_t *gnu_hash;
};

static uint32_t gnu_hash_of(const char *name) {
    uint32_t hash = 5381;
    for (const unsigned char *c = (const unsigned char *)name; *c != 0; c++)
        hash = hash * 33 + *c;
    return hash;
}

static void *defined_address(ElfW(Addr) base, const struct symbol_tables *tables, uint32_t index,
                             const char *name) {
    const ElfW(Sym) *symbol = &tables->symbols[index];
    if (symbol->st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbol->st_info) != STT_FUNC) return NULL;
    if (strcmp(tables->strings + symbol->st_name, name) != 0) return NULL;
    return (void *)(base + symbol->st_value);
}

/* The layout of DT_GNU_HASH: bucket count, first hashed symbol, bloom size, bloom shift, the bloom
 * filter, the buckets, then one word a symbol whose lowest bit ends a chain. */
static void *find_by_gnu_hash(ElfW(Addr) base, const struct symbol_tables *tables,
                              const char *name) {
    const uint32_t bucket_count = tables->gnu_hash[0];
    const uint32_t first_symbol = tables->gnu_hash[1];
    const uint32_t bloom_words = tables->gnu_hash[2];
    const uint32_t *buckets =
        tables->gnu_hash + 4 + (size_t)bloom_words * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    const uint32_t *chain = buckets + bucket_count;
    if (bucket_count == 0) return NULL;
    const uint32_t hash = gnu_hash_of(name);
    uint32_t index = buckets[hash % bucket_count];
    if (index < first_symbol) return NULL;
    for (;; index++) {
        const uint32_t word = chain[index - first_symbol];
        if ((word | 1) == (hash | 1)) {
            void *address = defined_address(base, tables, index, name);
            if (address != NULL) return address;
        }
        if (word & 1) return NULL;
    }
}

/* glibc rewrites these pointers to addresses when it loads an object. */
static struct symbol_tables read_tables(const ElfW(Dyn) * dynamic) {
    struct symbol_tables tables = {0};
    for (; dynamic->d_tag != DT_NULL; dynamic++) {
        if (dynamic->d_tag == DT_SYMTAB) tables.symbols = (const void *)dynamic->d_un.d_ptr;
        if (dynamic->d_tag == DT_STRTAB) tables.strings = (const void *)dynamic->d_un.d_ptr;
        if (dynamic->d_tag == DT_GNU_HASH) tables.gnu_hash = (const void *)dynamic->d_un.d_ptr;
    }
    return tables;
}

static int visit_object(struct dl_phdr_info *info, size_t size, void *argument) {
    (void)size;
    struct query *query = argument;
    const char *slash = strrchr(info->dlpi_name, '/');
    const char *file_name = slash != NULL ? slash + 1 : info->dlpi_name;
    if (strcmp(file_name, query->object_file_name) != 0) return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
        const struct symbol_tables tables =
            read_tables((const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr));
        if (tables.symbols == NULL || tables.strings == NULL || tables.gnu_hash == NULL) return 0;
        query->address = find_by_gnu_hash(info->dlpi_addr, &tables, query->name);
    }
    return query->address != NULL;
}

void *elf_lookup(const char *object_file_name, const char *name) {
    struct query query = {.object_file_name = object_file_name, .name = name};
    dl_iterate_phdr(visit_object, &query);
    return query.address;
}
