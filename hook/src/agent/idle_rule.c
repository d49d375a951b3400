#include "agent/idle_rule.h"

void idle_rule_start(struct idle_rule *rule, uint32_t idle_ms) {
    *rule = (struct idle_rule){.idle_ms = idle_ms, .patience = 1};
}

static void fade(struct idle_rule *rule, uint64_t now_ms) {
    uint64_t period_ms = (uint64_t)rule->idle_ms * IDLE_FADES_AFTER;
    while (rule->patience > 1 && now_ms >= rule->patience_at_ms + period_ms) {
        rule->patience /= 2;
        rule->patience_at_ms += period_ms;
    }
}

void idle_rule_asked(struct idle_rule *rule, uint64_t now_ms) {
    fade(rule, now_ms);
    bool robbed =
        rule->released_ms != 0 && now_ms - rule->released_ms <= (uint64_t)rule->idle_ms * IDLE_SOON;
    if (robbed) {
        if (rule->patience < IDLE_PATIENCE_MAX) rule->patience *= 2;
        rule->patience_at_ms = now_ms;
    }
    rule->released_ms = 0;
}

uint64_t idle_rule_over_ms(struct idle_rule *rule, uint64_t now_ms) {
    fade(rule, now_ms);
    return rule->busy_ms + (uint64_t)rule->idle_ms * rule->patience;
}
