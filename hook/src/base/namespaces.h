/* Other namespaces of the dynamic linker (dlmopen): what is loaded there does not see our exports,
 * so a driver there is used behind our back. */
#pragma once

#include <stdbool.h>

/* The program is about to make one. */
void namespaces_expect(void);
/* The driver is in another one, too. Reads a file of /proc once one was made; does nothing before.
 */
bool namespaces_have_driver(void);
