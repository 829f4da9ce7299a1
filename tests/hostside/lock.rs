//! The lock of a name, as several laptops take it.

use std::os::unix::fs::symlink;

use orchestrate::plan::action::lock::{HELD, put_aside, take};
use orchestrate::plan::lock_record::Lock;

use crate::{Host, Kept, executable, until};

/// Two find the same lock of a holder who is gone. The second has looked at it when the first takes it over.
#[test]
fn of_two_takers_of_one_stale_lock_one_gets_it() {
    let host = Host::new();
    let site = host.site();
    symlink("old:1:2:elsewhere:wu", host.at("h.private/lock")).expect("linked");
    let stale = Lock { token: "old".to_owned(), owner: "wu".to_owned(), laptop: "elsewhere".to_owned(), pid: 2, age: 100 };
    let start = |script: &str| Kept(host.shell().args(["-c", script]).spawn().expect("a shell"));
    let ended = |mut child: Kept| until("it ends", || child.0.try_wait().expect("a child")).code();
    // The second's look takes its time.
    let pause = format!(
        "#!/bin/sh\nl=$(command -p readlink \"$1\") && echo \"$l\"\ncase $l in old:*) : >'{0}/looked'; until [ -e '{0}/go' ] || [ ! -d '{0}' ]; do /bin/sleep 0.01; done ;; esac\n",
        host.dir.path().display()
    );
    executable(&host.at("bin/readlink"), &pause);
    let second = start(&put_aside(&site, &stale).script);
    until("the second has looked", || host.at("looked").exists().then_some(()));
    std::fs::remove_file(host.at("bin/readlink")).expect("removed");
    assert_eq!(ended(start(&put_aside(&site, &stale).script)), Some(0));
    assert_eq!(ended(start(&take(&site, "one:1:2:desk:li").script)), Some(0));
    host.write("go", "");
    assert_eq!(ended(second), Some(0));
    assert_eq!(ended(start(&take(&site, "two:1:2:laptop:zhao").script)), Some(HELD));
    let holder = || std::fs::read_link(host.at("h.private/lock")).expect("the lock").display().to_string();
    assert_eq!(holder(), "one:1:2:desk:li");
    assert!(host.at("h.private/lock.beat").exists(), "the first's sign of life stays");
    let left: Vec<_> = std::fs::read_dir(host.at("h.private")).expect("a folder").map(|e| e.expect("an entry").file_name()).collect();
    assert!(!left.iter().any(|name| name.display().to_string().contains("lock.old")), "{left:?}");
}
