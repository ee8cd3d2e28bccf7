// Reads one element behind a heap block.
#include <vector>

int main(int argc, char**) {
  const std::vector<int> four(4);
  // argc is 1, which the compiler does not know; a constant index would be a warning instead.
  return four.data()[3 + argc];
}
