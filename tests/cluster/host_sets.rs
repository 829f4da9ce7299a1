//! Sets of hosts: `tests/cluster/hosts up --sets N` starts N identical ones. One test at a time uses a set, so as many tests run in parallel
//! as there are sets.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, PoisonError};

/// The sets that no test uses; `None` before the first request.
static FREE_SETS: Mutex<Option<Vec<HostSet>>> = Mutex::new(None);
static SET_RETURNED: Condvar = Condvar::new();

/// One set. Host names are the same in every set, addresses differ.
pub(crate) struct HostSet {
    number: u8,
    /// Keys, client files and the directories that hosts share with this machine.
    pub(crate) dir: PathBuf,
    /// The hosts that already have this process's payloads.
    pub(crate) hosts_with_payloads: BTreeSet<&'static str>,
    /// Held for the lifetime of the process: a set belongs to one process.
    _lock: File,
}

/// A variable that `tests/cluster/hosts env` prints.
fn required_env(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set. The suite on real hosts needs: tests/cluster/hosts up && eval \"$(tests/cluster/hosts env)\"")
    })
}

/// The script that starts hosts, injects faults and heals them.
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

    /// Waits for a set that no other test uses.
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

    /// Returns the set for the next test.
    pub(crate) fn release(self) {
        FREE_SETS.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().push(self);
        SET_RETURNED.notify_one();
    }

    /// The value of `ORCH_SET` for the hosts' script.
    pub(crate) fn orch_set_value(&self) -> String {
        self.number.to_string()
    }

    /// An address in the set's network, by its last number.
    pub(crate) fn address(&self, last: u8) -> String {
        format!("172.30.{}.{last}", 76 + self.number)
    }
}
