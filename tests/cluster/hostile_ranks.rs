//! Hostile ranks that are root in their container, on hosts that are reached as a plain user; on one of these hosts sh is bash.

use crate::laptop::{Laptop, path_str};
use crate::support::{Cluster, JobSpec};

/// The hosts with hostile ranks: sh is dash on one and bash on the other.
const HOSTILE_HOSTS: [&str; 2] = ["gpu02", "gpu03"];

/// Plants hostile files wherever a rank can write. A name with `touch X` would create `X` in the ssh user's home if a shell ran it.
const PLANT_SCRIPT: &str = r#"
exec 2>/dev/null
out=${ORCH_RUN_DIR%.in/*}.out me=$ORCH_RUN_ID
echo before
echo x >"$ORCH_RUN_DIR/env" && echo 'in can be written'
echo x >"${ORCH_RUN_DIR%.in/*}.private/current" && echo 'private can be written'
echo x >/dev/stdout
cd "$out" || exit 9
for w in '$(cd;touch X)' '`cd;touch X`' ':-0};cd;touch${IFS}X;:${z' ';cd;touch X;' '|touch X' "$(printf '\ntouch X\n')" 'a[$(touch X)]' '..' '*' '?' \
  '~' "'" '"' '\' '-rf' ' ' "$(printf '\033]52;c;eA==\007')" "$(printf '\033[2J')" "$(printf '\344')" 'x:y' '0;0' '&' '%n%s'; do
  for n in "rank-$w.0.log" "rank-0.$w.log" "rank-$w.0.pid" "rank-$w.0.rc" "$w.log" "rank-5.0.log$w" "node$w.log" "node.rc$w"; do echo text >"$me.$n"; done
done
for n in current run.json record attached lock keep beat; do echo "$(printf 'x; touch X\033[2J')" >"$n"; done
for n in rank-10.0.log rank-10.0.pid rank-10.0.rc rank-11.0.log oom; do ln -s /home/dev/.ssh/authorized_keys "$me.$n"; done
ln -s ../../../.ssh "$me.rank-12.0.log"
mkfifo "$me.rank-13.0.log" "$me.rank-13.0.pid" "$me.rank-14.0.rc"
mkdir -p "$me.rank-15.0.log/deep" "$me.kept"; echo x >"$me.rank-15.0.log/deep/x"; echo x >"$me.kept/x"
dd if=/dev/zero of="$me.rank-16.0.log" bs=1 count=1 seek=3000000000
echo 'a[$(cd;touch X)] 1' >"$me.rank-17.0.rc"; echo 'a[$(cd;touch X)] 1 1 1' >"$me.rank-17.0.pid"; echo seventeen >"$me.rank-17.0.log"
chmod 000 "$me.rank-$RANK.0.log"
echo after
"#;

/// Digest, mode, owner and name of every file that is not ours: `/etc`, and the home directories without the run directory.
pub(crate) fn list_foreign_files(cluster: &Cluster, host: &str) -> String {
    let script = "find /root /etc /home -name .orchestrate -prune -o -printf '%y %m %U %G %l %p\\n' | sort
                  find /root /etc /home -name .orchestrate -prune -o -type f -print0 | sort -z | xargs -0 sha256sum";
    cluster.exec_on(host, script)
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn planted_files_do_no_harm_and_are_removed() {
    let cluster = Cluster::acquire();
    let laptop = Laptop::new();
    let mut job = JobSpec::busybox("planted").with_hosts(&["gpu01", "gpu02", "gpu03"]).with_command(&[
        "/bin/sh",
        "-c",
        "[ \"$RANK\" = 0 ] || eval \"$PLANT\"",
    ]);
    job.env = format!("PLANT: {}\n", crate::support::yaml_quote(PLANT_SCRIPT));
    job.top_level = "logs: { max: 1m }\n".to_owned();
    let before = HOSTILE_HOSTS.map(|host| list_foreign_files(&cluster, host));
    let file = cluster.write_inventory(&laptop, &job);
    let up = laptop.run(&["up", "--progress", "plain", path_str(&file)]);
    up.assert_exit_code(0).assert_contains("is not the name of a log or a status: it is ignored");
    assert!(!up.transcript().contains(['\u{1b}', '\u{9b}', '\u{7}']), "{:?}", up.transcript());
    for rank in 1..=2 {
        assert_eq!(laptop.read_log_text(&format!("rank-{rank}.log")), "before\nx\nafter\n", "rank {rank}");
    }
    assert_eq!(HOSTILE_HOSTS.map(|host| list_foreign_files(&cluster, host)), before, "no foreign file changed");
    // Nothing of it is left, including the directories of the container's root.
}

/// The lost bytes are counted, and the rank keeps running.
#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn log_over_limit_is_cut_and_excess_counted() {
    let cluster = Cluster::acquire();
    let laptop = Laptop::new();
    let mut job = JobSpec::busybox("bound").with_command(&["/bin/sh", "-c", "yes 0123456789abcde | head -c 300000; exit 3"]);
    job.top_level = "logs: { max: 128k }\n".to_owned();
    let file = cluster.write_inventory(&laptop, &job);
    let up = laptop.run(&["up", "--progress", "plain", path_str(&file)]);
    up.assert_exit_code(1)
        .assert_contains("exit 3")
        .assert_contains("log lacks 168928 bytes from byte 131072 on: the log reached logs.max");
    assert_eq!(laptop.read_log("rank-0.log"), "0123456789abcde\n".repeat(131_072 / 16).into_bytes());
}
