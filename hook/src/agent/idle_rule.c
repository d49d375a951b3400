#include "agent/idle_rule.h"

static void fade(struct idle_rule *rule, uint64_t now_ms) {
    uint64_t period_ms = (uint64_t)rule->idle_ms * IDLE_FADES_AFTER;
    while (rule->doublings > 0 && now_ms >= rule->doubled_at_ms + period_ms) {
        rule->doublings--;
        rule->doubled_at_ms += period_ms;
    }
}

void idle_rule_asked(struct idle_rule *rule, uint64_t now_ms) {
    fade(rule, now_ms);
    bool robbed = rule->released_ms != 0 && rule->told_ms == 0 &&
                  now_ms - rule->released_ms <= (uint64_t)rule->idle_ms * IDLE_SOON;
    if (robbed) {
        if (rule->doublings < IDLE_DOUBLINGS_MAX) rule->doublings++;
        rule->doubled_at_ms = now_ms;
    }
    rule->released_ms = 0;
}

uint64_t idle_rule_over_ms(struct idle_rule *rule, uint64_t now_ms) {
    fade(rule, now_ms);
    if (rule->told_ms) return rule->busy_ms + rule->told_ms;
    return rule->busy_ms + ((uint64_t)rule->idle_ms << rule->doublings);
}
