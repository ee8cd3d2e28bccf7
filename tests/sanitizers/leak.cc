// Forgets a heap block.
#include <cstdlib>

int main() {
  void* volatile lost = std::malloc(42);
  lost = nullptr;
  return lost != nullptr;
}
