// Includes no header: the hosts have no compiler of their own, and the one that they receive has no header files.
template <int A> struct Scale {
    static int of(int x) { return A * x; }
};

extern "C" int orch_scale(int x) { return Scale<ARCH>::of(x) + 0; }
