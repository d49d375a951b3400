/* dlsym, as applications see it.
 *
 * interpose_dlsym answers for the functions that we wrap. For everything else control jumps to the
 * C library's dlsym with every argument register as it came, so that the return address is still
 * the caller's: RTLD_NEXT and RTLD_DEFAULT are resolved by it. interpose_dlsym returns two words:
 * an address, and whether that is the answer (not 0) or the function to jump to (0). */

#if defined(__x86_64__)
    .text
    .p2align 4
    .type dlsym_trampoline, @function
dlsym_trampoline:
    .cfi_startproc
    endbr64
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    subq $8, %rsp
    .cfi_adjust_cfa_offset 8
    call interpose_dlsym
    addq $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    testq %rdx, %rdx
    jne 1f
    jmp *%rax
1:  ret
    .cfi_endproc
    .size dlsym_trampoline, .-dlsym_trampoline
#define OLDEST_VERSION GLIBC_2.2.5

#elif defined(__aarch64__)
    .text
    .p2align 4
    .type dlsym_trampoline, %function
dlsym_trampoline:
    .cfi_startproc
    hint #34 /* bti c */
    stp x29, x30, [sp, #-32]!
    .cfi_adjust_cfa_offset 32
    .cfi_offset 29, -32
    .cfi_offset 30, -24
    stp x0, x1, [sp, #16]
    bl interpose_dlsym
    mov x16, x0
    mov x17, x1
    ldp x0, x1, [sp, #16]
    ldp x29, x30, [sp], #32
    .cfi_restore 30
    .cfi_restore 29
    .cfi_adjust_cfa_offset -32
    cbnz x17, 1f
    br x16
1:  mov x0, x16
    ret
    .cfi_endproc
    .size dlsym_trampoline, .-dlsym_trampoline
#define OLDEST_VERSION GLIBC_2.17

#else
#error "The hook is written for x86-64 and for 64-bit Arm. Add a dlsym trampoline for this one."
#endif

/* One function under both symbol versions that programs may ask for: the one of glibc 2.34, where
 * dlsym moved into libc.so.6, and the architecture's oldest. */
#define EXPORT_AS(alias, symbol, at, version) EXPORT_AS_(alias, symbol, at, version)
#define EXPORT_AS_(alias, symbol, at, version) \
    .globl alias; .set alias, dlsym_trampoline; .symver alias, symbol##at##version, remove
EXPORT_AS(dlsym_oldest, dlsym, @, OLDEST_VERSION)
EXPORT_AS(dlsym_2_34, dlsym, @@, GLIBC_2.34)

    .section .note.GNU-stack, "", %progbits
