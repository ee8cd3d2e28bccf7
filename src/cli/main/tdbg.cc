#include "cli/command.h"

int main(int argc, char** argv) { return tdbg::cli::Main(argc, argv); }
