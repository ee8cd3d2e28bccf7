// Adds to the largest int.
#include <limits>

int main(int argc, char**) {
  const int sum = std::numeric_limits<int>::max() + argc;
  return sum == 0;
}
