use strict; use Socket; $| = 1;
# As listen.py, for hosts that have perl and no python3. IPv4 only.
my ($seconds, $six, $given) = @ARGV;
my @listeners;
for (["ephemeral", 0], ["given", $given]) {
    my ($label, $port) = @$_;
    next if $label eq "given" && !$port;
    my $s;
    socket($s, PF_INET, SOCK_STREAM, 0) && setsockopt($s, SOL_SOCKET, SO_REUSEADDR, pack("l", 1))
        && bind($s, sockaddr_in($port, INADDR_ANY)) && listen($s, 128) or do { print "cannot $label $!\n"; next };
    push @listeners, $s;
    print "listens $label ", (sockaddr_in(getsockname($s)))[0], "\n";
}
print "ready\n";
my $end = time + $seconds;
my @clients;
while (time < $end) {
    my $bits = "";
    vec($bits, fileno($_), 1) = 1 for @listeners, @clients, \*STDIN;
    select(my $ready = $bits, undef, undef, $end - time) > 0 or next;
    if (vec($ready, fileno(STDIN), 1)) { sysread(STDIN, my $data, 4096) or exit 0; }
    my @stay;
    for (@clients) {
        if (vec($ready, fileno($_), 1)) { close $_ } else { push @stay, $_ }
    }
    for (@listeners) {
        next unless vec($ready, fileno($_), 1);
        accept(my $c, $_) or next;
        setsockopt($c, SOL_SOCKET, SO_LINGER, pack("ii", 1, 0));
        push @stay, $c;
        close shift @stay if @stay > 200;
    }
    @clients = @stay;
}
