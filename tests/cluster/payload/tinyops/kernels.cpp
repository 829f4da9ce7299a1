// Without a header: the hosts have no compiler of their own, and the one that they are given comes without a library.
template <int A> struct Scale {
    static int of(int x) { return A * x; }
};

extern "C" int orch_scale(int x) { return Scale<ARCH>::of(x) + 0; }
