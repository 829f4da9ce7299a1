//! How much memory a container may lock: without a limit where the engine can give that, else as much as it can.
//!
//! RDMA locks the memory that it sends from. A rootless dockerd, and one without CAP_SYS_RESOURCE, may not raise the limit above its own:
//! then runc does not start the container at all (`error setting rlimit type 8: operation not permitted`, crun says
//! `` setrlimit `RLIMIT_MEMLOCK` ``), even if no process needs it.

/// The limit that is requested first.
pub(crate) const UNLIMITED_FLAG: &str = "--ulimit=memlock=-1";

/// sh: `attempt` runs `start` with its own arguments (it takes `$lock` before the user's own flags, writes its standard output to 4 and its complaints to
/// standard output) until docker does not refuse the limit: no limit, then the lowest hard limit of the daemons that are seen here, then
/// this shell's, then none is asked for. `drop` removes what a failed start has left. Then `$rc` and `$says` are the last one's, and `$most`
/// is the limit in bytes, `default`, or empty where there is none.
pub(crate) const START_WITH_MEMLOCK_SH: &str = r#"refused() { case $rc:$says in 0:*) return 1 ;; *'setting rlimit type 8:'* | *'setrlimit `RLIMIT_MEMLOCK`'*) return 0 ;; esac; return 1; }
locked_by_daemons() {
  least=
  for d in /proc/[0-9]*; do
    c=; { read -r c <"$d/comm"; } 2>/dev/null
    case $c in dockerd | containerd) ;; *) continue ;; esac
    l=$(sed -n 's/^Max locked memory  *[^ ]*  *\([^ ]*\).*/\1/p' "$d/limits" 2>/dev/null)
    case $l in '' | *[!0-9]*) continue ;; esac
    if [ -z "$least" ] || [ "$l" -lt "$least" ]; then least=$l; fi
  done
  echo "$least"
}
locked_by_shell() {
  l=$(ulimit -H -l 2>/dev/null)
  case $l in '' | *[!0-9]*) ;; *) echo "$((l * 1024))" ;; esac
}
attempt() {
  most= lock=--ulimit=memlock=-1
  { says=$(start "$@" 2>&1); rc=$?; } 4>&1
  refused || return 0
  for most in $(locked_by_daemons) $(locked_by_shell) default; do
    drop
    case $most in default) lock= ;; *) lock=--ulimit=memlock=$most:$most ;; esac
    { says=$(start "$@" 2>&1); rc=$?; } 4>&1
    refused || return 0
  done
}
"#;

/// A limit for people: `64 KiB`.
pub(crate) fn format_bytes(bytes: u64) -> String {
    match bytes {
        0..0x10_0000 => format!("{} KiB", bytes >> 10),
        0x10_0000..0x4000_0000 => format!("{} MiB", bytes >> 20),
        _ => format!("{} GiB", bytes >> 30),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// A docker that refuses more locked memory than `most` bytes with `text`; it notes how it was called.
    fn write_fake_docker(dir: &Path, most: &str, text: &str) {
        let script = format!(
            "#!/bin/sh\nprintf '%s\\n' \"$*\" >>{dir}/calls\ncase $* in *memlock={most}:* | *memlock={most}\\ *) echo started; exit 0 ;; *memlock*) cat {dir}/text >&2; exit 126 ;; esac\n\
             [ {most} != none ] || {{ echo started; exit 0; }}\ncat {dir}/text >&2; exit 126\n",
            dir = dir.display()
        );
        std::fs::write(dir.join("docker"), script).expect("written");
        std::fs::write(dir.join("text"), text).expect("written");
    }

    /// What `start` printed, `rc`, `most`, and how docker was called; `daemons`: their limits.
    fn run_attempt(shell: &str, most: &str, text: &str, daemons: &str) -> Option<(String, String)> {
        let dir = tempfile::tempdir().expect("a folder");
        write_fake_docker(dir.path(), most, text);
        let script = format!(
            "{START_WITH_MEMLOCK_SH}locked_by_daemons() {{ echo {daemons}; }}\nlocked_by_shell() {{ echo 65536; }}\n\
             D() {{ sh {dir}/docker \"$@\"; }}\nstart() {{ D run $lock \"$@\" >&4; }}\ndrop() {{ echo dropped >>{dir}/calls; }}\n\
             attempt 'a b' image\necho \"$rc $most\"\n",
            dir = dir.path().display()
        );
        let mut words = shell.split(' ');
        let out = std::process::Command::new(words.next()?).args(words).args(["-c", &script]).output().ok()?;
        assert!(out.stderr.is_empty(), "{}", String::from_utf8_lossy(&out.stderr));
        let calls = std::fs::read_to_string(dir.path().join("calls")).expect("calls");
        Some((String::from_utf8_lossy(&out.stdout).into_owned(), calls.replace('\n', ";")))
    }

    const RUNC_ERROR: &str = "docker: Error response from daemon: failed to create task for container: failed to create shim task: OCI runtime create \
                        failed: runc create failed: unable to start container process: error during container init: error setting rlimits for \
                        ready process: error setting rlimit type 8: operation not permitted: unknown.";

    #[test]
    fn highest_allowed_memlock_limit_is_used() {
        let crun = "Error: crun: setrlimit `RLIMIT_MEMLOCK`: Operation not permitted: OCI permission denied";
        let mut shells = 0;
        for shell in ["/bin/sh", "dash", "bash", "busybox sh"] {
            let Some(fine) = run_attempt(shell, "-1", RUNC_ERROR, "8388608") else { continue };
            shells += 1;
            assert_eq!(fine, ("started\n0 \n".to_owned(), "run --ulimit=memlock=-1 a b image;".to_owned()), "{shell}");
            for text in [RUNC_ERROR, crun] {
                let (output, calls) = run_attempt(shell, "8388608", text, "8388608").expect("a shell");
                assert_eq!(output, "started\n0 8388608\n", "{shell}");
                assert_eq!(calls, "run --ulimit=memlock=-1 a b image;dropped;run --ulimit=memlock=8388608:8388608 a b image;", "{shell}");
            }
            let (output, calls) = run_attempt(shell, "65536", RUNC_ERROR, "").expect("a shell");
            assert_eq!((output.as_str(), calls.matches("dropped").count()), ("started\n0 65536\n", 1), "{shell}");
            let (output, calls) = run_attempt(shell, "none", RUNC_ERROR, "8388608").expect("a shell");
            assert_eq!((output.as_str(), calls.matches("dropped").count()), ("started\n0 default\n", 3), "{shell}");
            assert!(calls.ends_with("dropped;run a b image;"), "{calls}");
        }
        assert!(shells > 0, "no shell");
    }

    #[test]
    fn other_docker_errors_are_not_retried() {
        for text in ["docker: no space left on device", "error setting rlimit type 7: operation not permitted", ""] {
            let (output, calls) = run_attempt("/bin/sh", "0", text, "8388608").expect("a shell");
            assert_eq!((output.as_str(), calls.as_str()), ("126 \n", "run --ulimit=memlock=-1 a b image;"), "{text}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn daemon_limits_are_read_from_proc() {
        // A shell that is called as the daemon is.
        let dir = tempfile::tempdir().expect("a folder");
        let daemon = dir.path().join("dockerd");
        std::os::unix::fs::symlink("/bin/sh", &daemon).expect("linked");
        let script = format!("{START_WITH_MEMLOCK_SH}locked_by_daemons");
        let line = format!("ulimit -H -l 16 2>/dev/null; ulimit -l 16; sh -c '{}'; :", script.replace('\'', "'\\''"));
        let out = std::process::Command::new(&daemon).args(["-c", &line]).output().expect("a shell");
        let output: u64 = String::from_utf8_lossy(&out.stdout).trim().parse().expect("a number");
        assert!(output <= 16 << 10, "{output}");
    }

    #[test]
    fn memlock_limits_are_formatted() {
        assert_eq!([65_536, 8 << 20, 3 << 30].map(format_bytes), ["64 KiB", "8 MiB", "3 GiB"]);
    }
}
