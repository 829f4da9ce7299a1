//! Sets of hosts: `tests/cluster/hosts up --sets N` starts N that are alike. A set belongs to one test at a time, so as many tests run
//! side by side as there are sets.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, PoisonError};

/// The sets that no test has; none before the first test asks.
static FREE_SETS: Mutex<Option<Vec<HostSet>>> = Mutex::new(None);
static SET_RETURNED: Condvar = Condvar::new();

/// One set. Its hosts have the names of every other set's hosts and addresses of their own.
pub(crate) struct HostSet {
    number: u8,
    /// Keys, client files and the folders that hosts share with this machine.
    pub(crate) dir: PathBuf,
    /// The hosts that have this process's payloads.
    pub(crate) hosts_with_payloads: BTreeSet<&'static str>,
    /// Held as long as this process lives: the set belongs to one process.
    _lock: File,
}

/// What `tests/cluster/hosts env` prints.
fn required_env(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set. The suite on real hosts needs: tests/cluster/hosts up && eval \"$(tests/cluster/hosts env)\"")
    })
}

/// The script that starts, breaks and mends hosts.
pub(crate) fn hosts_script() -> PathBuf {
    PathBuf::from(required_env("ORCH_CLUSTER_HOSTS"))
}

impl HostSet {
    fn open(number: u8) -> HostSet {
        let suffix = if number == 1 { String::new() } else { format!("-{number}") };
        let dir = PathBuf::from(required_env("ORCH_TEST_CACHE")).join(format!("run{suffix}"));
        let lock = File::create(dir.join("suite.lock")).expect("a lock file");
        lock.lock().expect("locked");
        HostSet { number, dir, hosts_with_payloads: BTreeSet::new(), _lock: lock }
    }

    /// Waits for a set that no other test has.
    pub(crate) fn acquire() -> HostSet {
        let mut free = FREE_SETS.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let sets = free.get_or_insert_with(|| {
                required_env("ORCH_CLUSTER_SETS").split(' ').map(|number| HostSet::open(number.parse().expect("a number"))).collect()
            });
            if let Some(set) = sets.pop() {
                return set;
            }
            free = SET_RETURNED.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Gives it to the next test.
    pub(crate) fn release(self) {
        FREE_SETS.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().push(self);
        SET_RETURNED.notify_one();
    }

    /// What the hosts' script takes for `ORCH_SET`.
    pub(crate) fn orch_set_value(&self) -> String {
        self.number.to_string()
    }

    /// An address of its network, by the last number.
    pub(crate) fn address(&self, last: u8) -> String {
        format!("172.30.{}.{last}", 76 + self.number)
    }
}
