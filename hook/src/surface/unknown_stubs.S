/* UNKNOWN_STUBS functions, each of which goes to its own real function by a jump, with every register
 * and the stack as they came. Until one was let through, unknown_called is asked before. */
#include "surface/unknown.h"

#if defined(__x86_64__)
    .text
    .p2align 4
    .globl unknown_stubs
    .hidden unknown_stubs
    .type unknown_stubs, @object
unknown_stubs:
.set number, 0
.rept UNKNOWN_STUBS
    .p2align 4
    endbr64
    movl $number, %r11d
    jmp go_on
.set number, number + 1
.endr
    .size unknown_stubs, .-unknown_stubs

    .p2align 4
    .type go_on, @function
go_on:
    .cfi_startproc
    cmpb $0, unknown_is_used(%rip)
    je ask_first
1:  pushq %rax
    .cfi_adjust_cfa_offset 8
    leaq unknown_real(%rip), %rax
    movq (%rax, %r11, 8), %r11
    popq %rax
    .cfi_adjust_cfa_offset -8
    jmp *%r11
ask_first:
    .irp register, rax, rdi, rsi, rdx, rcx, r8, r9, r10, r11
    pushq %\register
    .cfi_adjust_cfa_offset 8
    .endr
    subq $128, %rsp
    .cfi_adjust_cfa_offset 128
    .irp number, 0, 1, 2, 3, 4, 5, 6, 7
    movups %xmm\number, 16 * \number(%rsp)
    .endr
    movl %r11d, %edi
    call unknown_called
    testl %eax, %eax
    jne 2f
    .irp number, 0, 1, 2, 3, 4, 5, 6, 7
    movups 16 * \number(%rsp), %xmm\number
    .endr
    addq $128, %rsp
    .cfi_adjust_cfa_offset -128
    .irp register, r11, r10, r9, r8, rcx, rdx, rsi, rdi, rax
    popq %\register
    .cfi_adjust_cfa_offset -8
    .endr
    jmp 1b
2:  .cfi_adjust_cfa_offset 200
    addq $200, %rsp
    .cfi_adjust_cfa_offset -200
    ret
    .cfi_endproc
    .size go_on, .-go_on

#elif defined(__aarch64__)
    .text
    .p2align 4
    .globl unknown_stubs
    .hidden unknown_stubs
    .type unknown_stubs, %object
unknown_stubs:
.set number, 0
.rept UNKNOWN_STUBS
    .p2align 4
    hint #34 /* bti c */
    mov w16, #number
    b go_on
.set number, number + 1
.endr
    .size unknown_stubs, .-unknown_stubs

    .p2align 4
    .type go_on, %function
go_on:
    .cfi_startproc
    adrp x17, unknown_is_used
    ldrb w17, [x17, #:lo12:unknown_is_used]
    cbz w17, ask_first
1:  adrp x17, unknown_real
    add x17, x17, #:lo12:unknown_real
    ldr x16, [x17, x16, lsl #3]
    br x16
ask_first:
    stp x29, x30, [sp, #-224]!
    .cfi_adjust_cfa_offset 224
    .cfi_offset 29, -224
    .cfi_offset 30, -216
    stp x0, x1, [sp, #16]
    stp x2, x3, [sp, #32]
    stp x4, x5, [sp, #48]
    stp x6, x7, [sp, #64]
    stp x8, x16, [sp, #80]
    stp q0, q1, [sp, #96]
    stp q2, q3, [sp, #128]
    stp q4, q5, [sp, #160]
    stp q6, q7, [sp, #192]
    mov w0, w16
    bl unknown_called
    mov w17, w0
    ldp x0, x1, [sp, #16]
    ldp x2, x3, [sp, #32]
    ldp x4, x5, [sp, #48]
    ldp x6, x7, [sp, #64]
    ldp x8, x16, [sp, #80]
    ldp q0, q1, [sp, #96]
    ldp q2, q3, [sp, #128]
    ldp q4, q5, [sp, #160]
    ldp q6, q7, [sp, #192]
    ldp x29, x30, [sp], #224
    .cfi_restore 30
    .cfi_restore 29
    .cfi_adjust_cfa_offset -224
    cbz w17, 1b
    mov w0, w17
    ret
    .cfi_endproc
    .size go_on, .-go_on

#else
#error "The hook is written for x86-64 and for 64-bit Arm. Add stubs for this one."
#endif

    .section .note.GNU-stack, "", %progbits
