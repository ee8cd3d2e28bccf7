#include "jobs/log_keeper.h"

int main() { return tdbg::jobs::KeepLog(); }
