#include "scripts/paged_memory/memory_account.h"

void memory_account_add(struct memory_account *account, const struct memory_use *use,
                        double seconds) {
    account->seconds += seconds;
    account->requests += seconds * use->num_requests;
    account->token += seconds * (double)use->token_slots;
    account->reserved += seconds * (double)use->reserved_slots;
    account->internal += seconds * (double)use->internal_slots;
    account->given += seconds * (double)use->given_slots;
    account->unshared += seconds * (double)use->unshared_slots;
    account->num_steps++;
}

static double ratio(double part, double whole) {
    return whole > 0 ? part / whole : 0;
}

static double share_of_pool(const struct memory_account *account, double slot_seconds) {
    return ratio(slot_seconds, account->num_slots * account->seconds);
}

double memory_account_requests(const struct memory_account *account) {
    return ratio(account->requests, account->seconds);
}

double memory_account_token(const struct memory_account *account) {
    return share_of_pool(account, account->token);
}

double memory_account_reserved(const struct memory_account *account) {
    return share_of_pool(account, account->reserved);
}

double memory_account_internal(const struct memory_account *account) {
    return share_of_pool(account, account->internal);
}

double memory_account_others(const struct memory_account *account) {
    return 1 - memory_account_token(account) - memory_account_reserved(account) -
           memory_account_internal(account);
}

double memory_account_useful(const struct memory_account *account) {
    return ratio(account->token, account->given);
}

double memory_account_saved(const struct memory_account *account) {
    return ratio(account->unshared - account->given, account->unshared);
}
