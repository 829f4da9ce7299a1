//! Sets of hosts: `tests/cluster/hosts up --sets N` starts N that are alike. A set belongs to one test at a time, so as many tests run
//! side by side as there are sets.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, PoisonError};

/// The sets that no test has; none before the first test asks.
static FREE: Mutex<Option<Vec<Set>>> = Mutex::new(None);
static RETURNED: Condvar = Condvar::new();

/// One set. Its hosts have the names of every other set's hosts and addresses of their own.
pub(crate) struct Set {
    number: u8,
    /// Keys, client files and the folders that hosts share with this machine.
    pub(crate) dir: PathBuf,
    /// The hosts that have this process's payloads.
    pub(crate) prepared: BTreeSet<&'static str>,
    /// Held as long as this process lives: the set belongs to one process.
    _lock: File,
}

/// What `tests/cluster/hosts env` prints.
fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set. The suite on real hosts needs: tests/cluster/hosts up && eval \"$(tests/cluster/hosts env)\"")
    })
}

/// The script that starts, breaks and mends hosts.
pub(crate) fn script() -> PathBuf {
    PathBuf::from(variable("ORCH_CLUSTER_HOSTS"))
}

impl Set {
    fn open(number: u8) -> Set {
        let suffix = if number == 1 { String::new() } else { format!("-{number}") };
        let dir = PathBuf::from(variable("ORCH_TEST_CACHE")).join(format!("run{suffix}"));
        let lock = File::create(dir.join("suite.lock")).expect("a lock file");
        lock.lock().expect("locked");
        Set { number, dir, prepared: BTreeSet::new(), _lock: lock }
    }

    /// Waits for a set that no other test has.
    pub(crate) fn take() -> Set {
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let sets = free.get_or_insert_with(|| {
                variable("ORCH_CLUSTER_SETS").split(' ').map(|number| Set::open(number.parse().expect("a number"))).collect()
            });
            if let Some(set) = sets.pop() {
                return set;
            }
            free = RETURNED.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Gives it to the next test.
    pub(crate) fn give_back(self) {
        FREE.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().push(self);
        RETURNED.notify_one();
    }

    /// What the hosts' script takes for `ORCH_SET`.
    pub(crate) fn number(&self) -> String {
        self.number.to_string()
    }

    /// An address of its network, by the last number.
    pub(crate) fn address(&self, last: u8) -> String {
        format!("172.30.{}.{last}", 76 + self.number)
    }
}
