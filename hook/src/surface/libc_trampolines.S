/* dlsym, dlopen and dlmopen, as applications see them.
 *
 * Control jumps to the C library's function with every argument register as it came, so that the
 * return address is still the caller's: RTLD_NEXT and RTLD_DEFAULT are resolved by it, and the
 * caller's RUNPATH and $ORIGIN say where a library lies. The functions of interpose.c return two
 * words. For dlsym: an address, and whether that is the answer (not 0) or the function to jump to
 * (0). For dlopen and dlmopen: the function to jump to, and the flags to give it. */

#if defined(__x86_64__)
/* Keeps the argument registers over a call of ours, whose answer is in rax and rdx. Its fourth
 * argument is the address to which the caller's call returns. */
.macro ask function
    endbr64
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    pushq %rdx
    .cfi_adjust_cfa_offset 8
    movq 24(%rsp), %rcx
    call \function
    movq %rdx, %r11
    popq %rdx
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
.endm
#define ANSWER_OR_JUMP testq %r11, %r11; jne 1f; jmp *%rax; 1: ret
#define JUMP_IF_FOUND testq %rax, %rax; je 1f; jmp *%rax; 1: ret
#define SECOND_IS_FLAGS movl %r11d, %esi
#define THIRD_IS_FLAGS movl %r11d, %edx
#define TYPE_FUNCTION @function
#define OLDEST_VERSION GLIBC_2.2.5
#define OLDEST_DLMOPEN GLIBC_2.3.4

#elif defined(__aarch64__)
.macro ask function
    hint #34 /* bti c */
    stp x29, x30, [sp, #-48]!
    .cfi_adjust_cfa_offset 48
    .cfi_offset 29, -48
    .cfi_offset 30, -40
    stp x0, x1, [sp, #16]
    str x2, [sp, #32]
    mov x3, x30
    bl \function
    mov x16, x0
    mov x17, x1
    ldp x0, x1, [sp, #16]
    ldr x2, [sp, #32]
    ldp x29, x30, [sp], #48
    .cfi_restore 30
    .cfi_restore 29
    .cfi_adjust_cfa_offset -48
.endm
#define ANSWER_OR_JUMP cbnz x17, 1f; br x16; 1: mov x0, x16; ret
#define JUMP_IF_FOUND cbz x16, 1f; br x16; 1: mov x0, x16; ret
#define SECOND_IS_FLAGS mov w1, w17
#define THIRD_IS_FLAGS mov w2, w17
#define TYPE_FUNCTION %function
#define OLDEST_VERSION GLIBC_2.17
#define OLDEST_DLMOPEN GLIBC_2.17

#else
#error "The hook is written for x86-64 and for 64-bit Arm. Add trampolines for this one."
#endif

/* One function under both symbol versions that programs may ask for: the one of glibc 2.34, where
 * these moved into libc.so.6, and the architecture's oldest. */
#define EXPORT_AS(alias, symbol, at, version) EXPORT_AS_(alias, symbol, at, version)
#define EXPORT_AS_(alias, symbol, at, version) \
    .globl alias; .set alias, symbol##_trampoline; .symver alias, symbol##at##version, remove
#define TRAMPOLINE(symbol, oldest, ...) \
    .p2align 4; \
    .type symbol##_trampoline, TYPE_FUNCTION; \
    symbol##_trampoline: \
    .cfi_startproc; \
    ask interpose_##symbol; \
    __VA_ARGS__; \
    .cfi_endproc; \
    .size symbol##_trampoline, .-symbol##_trampoline; \
    EXPORT_AS(symbol##_oldest, symbol, @, oldest); \
    EXPORT_AS(symbol##_2_34, symbol, @@, GLIBC_2.34)

    .text
TRAMPOLINE(dlsym, OLDEST_VERSION, ANSWER_OR_JUMP)
TRAMPOLINE(dlopen, OLDEST_VERSION, SECOND_IS_FLAGS; JUMP_IF_FOUND)
TRAMPOLINE(dlmopen, OLDEST_DLMOPEN, THIRD_IS_FLAGS; JUMP_IF_FOUND)

    .section .note.GNU-stack, "", %progbits
