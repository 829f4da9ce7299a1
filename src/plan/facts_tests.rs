//! Answers of the facts script.

use super::*;
use crate::model::exit::Exit;

#[test]
fn lock_age_is_measured_from_last_heartbeat() {
    let age = |lines: &str| HostFacts::parse(&format!("now 1000\n{lines}")).lock.map(|lock| lock.heartbeat_age);
    assert_eq!(age("lock tok:1600:12:lap:me@lap\nlock_beat 900\n"), Some(100), "ahead");
    assert_eq!(age("lock tok:400:12:lap:me@lap\nlock_beat 998\n"), Some(2), "behind");
    assert_eq!(age("lock tok:990:12:lap:me@lap\nlock_beat 0\n"), Some(10), "no beat was made");
    assert_eq!(age("lock tok:990:12:lap:me@lap\nlock_beat \n"), Some(10), "it cannot be read");
    // The wall clock was set an hour forward or back: the boot's own clock decides.
    for now in ["4600", "1000", "-2600"] {
        let facts = HostFacts::parse(&format!("now {now}\nuptime 70 b-1\nlock tok:990:12:lap:me@lap\nlock_beat 66 b-1\n"));
        assert_eq!(facts.lock.map(|lock| lock.heartbeat_age), Some(4), "{now}");
    }
    assert_eq!(age("uptime 70 b-2\nlock tok:990:12:lap:me@lap\nlock_beat 900 b-1\n"), Some(70), "the host was restarted since");
}

#[test]
fn facts_output_is_parsed() {
    let facts = HostFacts::parse(
        "now 1000.5\nhome /home/a b\nrun_dir /home/a b/.orchestrate\nwritable yes\ndisk 500 1000\naddress 10.0.0.1 bond0.7\n\
             route 10.0.0.2 via 10.0.0.254 dev eth0 src 10.0.0.1 uid 0 \\    cache\nroute local 10.0.0.1 dev lo src 10.0.0.1\n\
             connection 1.2.3.4 5 10.0.0.1 22\ngpu GPU 0: H20 (UUID: x)\ngpu   MIG 1g\ndocker 20.10\n\
             container abc running 77 0 false sha256:1 /orch-n-h n h f00\nlock tok:900:12:lap:me@lap\nlock_beat 990\n\
             node pid 5 unseen\nrank rank-3.0 7 1000.25\nrank rank-2.0 running\nlog rank-3.0 44\nmystery 1\nrecord {\nnow_end 1001",
    );
    assert_eq!(facts.home, "/home/a b");
    assert_eq!(facts.ssh_address.as_deref(), Some("10.0.0.1"));
    assert_eq!((facts.addresses.as_slice(), facts.interface_for("10.0.0.1")), (["10.0.0.1".to_owned()].as_slice(), Some("bond0.7")));
    assert_eq!(facts.route_sources, BTreeMap::from([("10.0.0.2".to_owned(), "10.0.0.1".to_owned())]));
    assert_eq!(facts.gpu_lines.len(), 1);
    assert_eq!(facts.container().map(|c| c.container_hash.as_str()), Some("f00"));
    assert_eq!(facts.lock.as_ref().map(|l| (l.heartbeat_age, l.owner.as_str())), Some((10, "me@lap")));
    assert_eq!(facts.launcher, LauncherStatus::Started { alive_on_host: false });
    assert_eq!(facts.ranks, [(3, 0, Some((Exit::Code(7), 1000.25))), (2, 0, None)]);
    assert_eq!(facts.log_sizes, [(LogFile::Rank { rank: 3, restart: 0 }, 44)]);
    assert!(facts.run_record.as_ref().is_some_and(Result::is_err));
}

#[test]
fn stopped_ranks_have_not_failed() {
    let stopped = |ends: &[TimedExit], stop_requested| -> Vec<bool> {
        let ranks = (0..).zip(ends).map(|(rank, end)| (rank, 0, Some(*end))).collect();
        let facts = HostFacts { ranks, stop_requested, ..HostFacts::default() };
        ends.iter().map(|end| facts.was_stopped(*end)).collect()
    };
    let ends = [(Exit::Code(1), 10.0), (Exit::TERM, 10.5), (Exit::TERM, 9.0), (Exit::KILL, 11.0), (Exit::Code(0), 8.0)];
    assert_eq!(stopped(&ends, false), [false, true, false, false, false], "one got TERM before any rank had failed, one was killed");
    assert_eq!(stopped(&ends, true), [false, true, true, true, false]);
    assert_eq!(stopped(&[(Exit::KILL, 10.0), (Exit::TERM, 10.1)], false), [false, true], "out of memory, then the launcher");
}
