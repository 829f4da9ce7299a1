//! docker's command line: flags before the first word, as docker's own parser reads them. Pure.

/// Which flags a command knows: `long` or `short=long`.
pub(super) struct Known {
    /// Flags that take no value (`--init`, `--init=false`).
    pub(super) plain: &'static [&'static str],
    /// Flags that take one.
    pub(super) valued: &'static [&'static str],
}

/// What was given.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Flags {
    given: Vec<(&'static str, String)>,
    /// Everything from the first word on.
    pub(super) words: Vec<String>,
}

impl Flags {
    /// Whether a plain flag is set.
    pub(super) fn has(&self, name: &str) -> bool {
        self.last(name).is_some_and(|value| value != "false")
    }

    /// The last value given.
    pub(super) fn last(&self, name: &str) -> Option<&str> {
        self.given.iter().rev().find(|(n, _)| *n == name).map(|(_, value)| value.as_str())
    }

    /// Every value given, in order.
    pub(super) fn all(&self, name: &str) -> Vec<String> {
        self.given.iter().filter(|(n, _)| *n == name).map(|(_, value)| value.clone()).collect()
    }
}

fn find(list: &'static [&'static str], wanted: &str, short: bool) -> Option<&'static str> {
    list.iter().find_map(|entry| {
        let (s, long) = entry.split_once('=').unwrap_or(("", entry));
        ((short && s == wanted) || (!short && long == wanted)).then_some(long)
    })
}

impl Known {
    /// Reads `args`. With `anywhere`, flags may also stand behind words (docker's commands that take no command of their own).
    pub(super) fn parse(&self, args: &[String], anywhere: bool) -> Result<Flags, String> {
        let mut flags = Flags::default();
        let mut rest = args.iter();
        while let Some(word) = rest.next() {
            if word == "--" {
                flags.words.extend(rest.cloned());
                break;
            } else if let Some(long) = word.strip_prefix("--") {
                let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value.to_owned())));
                if let Some(name) = find(self.plain, name, false) {
                    flags.given.push((name, value.unwrap_or_else(|| "true".to_owned())));
                } else if let Some(name) = find(self.valued, name, false) {
                    let value = value.or_else(|| rest.next().cloned()).ok_or(format!("flag needs an argument: --{name}"))?;
                    flags.given.push((name, value));
                } else {
                    return Err(format!("unknown flag: --{name}"));
                }
            } else if word.len() > 1 && word.starts_with('-') {
                self.cluster(word, &mut rest, &mut flags)?;
            } else {
                flags.words.push(word.clone());
                if !anywhere {
                    flags.words.extend(rest.cloned());
                    break;
                }
            }
        }
        Ok(flags)
    }

    /// `-dit`, `-eK=V`, `-e K=V`, `-t=5`.
    fn cluster<'a>(&self, word: &str, rest: &mut impl Iterator<Item = &'a String>, flags: &mut Flags) -> Result<(), String> {
        let mut letters = word.trim_start_matches('-');
        while let Some(letter) = letters.chars().next() {
            let after = letters.get(letter.len_utf8()..).unwrap_or_default();
            if let Some(name) = find(self.plain, letter.encode_utf8(&mut [0; 4]), true) {
                flags.given.push((name, "true".to_owned()));
                letters = after;
            } else if let Some(name) = find(self.valued, letter.encode_utf8(&mut [0; 4]), true) {
                let attached = after.strip_prefix('=').unwrap_or(after);
                let value = if attached.is_empty() { rest.next().cloned() } else { Some(attached.to_owned()) };
                flags.given.push((name, value.ok_or(format!("flag needs an argument: '{letter}' in {word}"))?));
                return Ok(());
            } else {
                return Err(format!("unknown shorthand flag: '{letter}' in {word}"));
            }
        }
        Ok(())
    }
}

/// `docker run` and `docker create`.
pub(super) const RUN: Known = Known {
    plain: &[
        "d=detach",
        "rm",
        "init",
        "privileged",
        "i=interactive",
        "t=tty",
        "read-only",
        "q=quiet",
        "P=publish-all",
        "no-healthcheck",
        "oom-kill-disable",
        "sig-proxy",
        "disable-content-trust",
        "help",
    ],
    valued: &[
        "name",
        "l=label",
        "label-file",
        "mount",
        "v=volume",
        "e=env",
        "env-file",
        "network",
        "net",
        "gpus",
        "shm-size",
        "ulimit",
        "device",
        "cap-add",
        "cap-drop",
        "stop-timeout",
        "stop-signal",
        "restart",
        "log-driver",
        "log-opt",
        "u=user",
        "w=workdir",
        "entrypoint",
        "pull",
        "security-opt",
        "ipc",
        "pid",
        "h=hostname",
        "add-host",
        "cpuset-cpus",
        "cpus",
        "c=cpu-shares",
        "m=memory",
        "memory-swap",
        "memory-reservation",
        "oom-score-adj",
        "tmpfs",
        "cidfile",
        "runtime",
        "group-add",
        "platform",
        "userns",
        "uts",
        "pids-limit",
        "sysctl",
        "annotation",
        "dns",
        "storage-opt",
        "p=publish",
        "expose",
        "cgroupns",
        "cgroup-parent",
        "device-cgroup-rule",
        "volumes-from",
        "a=attach",
        "domainname",
        "health-cmd",
        "ip",
        "isolation",
        "link",
        "mac-address",
        "network-alias",
        "blkio-weight",
        "cpuset-mems",
        "kernel-memory",
        "detach-keys",
        "volume-driver",
    ],
};

/// `docker exec`.
pub(super) const EXEC: Known = Known {
    plain: &["d=detach", "i=interactive", "t=tty", "privileged"],
    valued: &["e=env", "env-file", "w=workdir", "u=user", "detach-keys"],
};

/// Commands that differ little: their flags together would be wrong, so one table each.
pub(super) fn of(command: &str) -> Known {
    match command {
        "ps" => Known { plain: &["a=all", "q=quiet", "no-trunc", "l=latest", "s=size"], valued: &["f=filter", "format", "n=last"] },
        "inspect" => Known { plain: &["s=size"], valued: &["type", "f=format"] },
        "stop" | "restart" => Known { plain: &[], valued: &["t=time", "timeout", "s=signal"] },
        "kill" => Known { plain: &[], valued: &["s=signal"] },
        "rm" => Known { plain: &["f=force", "v=volumes", "l=link"], valued: &[] },
        "logs" => Known { plain: &["f=follow", "t=timestamps", "details"], valued: &["n=tail", "since", "until"] },
        "start" => Known { plain: &["a=attach", "i=interactive"], valued: &[] },
        "pull" => Known { plain: &["q=quiet", "a=all-tags", "disable-content-trust"], valued: &["platform"] },
        "login" => Known { plain: &["password-stdin"], valued: &["u=username", "p=password"] },
        "images" => Known { plain: &["q=quiet", "a=all", "no-trunc", "digests"], valued: &["f=filter", "format"] },
        "version" | "info" => Known { plain: &[], valued: &["f=format"] },
        _ => Known { plain: &[], valued: &[] },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn run_stops_at_the_image() {
        let flags = RUN.parse(&words("-d --name x -eA=1 -e B=2 --init --gpus=all --label k=v img:1 sh -c -x"), false).expect("known flags");
        assert!(flags.has("detach") && flags.has("init") && !flags.has("rm"));
        assert_eq!((flags.last("name"), flags.last("gpus")), (Some("x"), Some("all")));
        assert_eq!(flags.all("env"), ["A=1", "B=2"]);
        assert_eq!(flags.words, ["img:1", "sh", "-c", "-x"]);
    }

    #[test]
    fn clusters_and_values() {
        let flags = EXEC.parse(&words("-it -w /d box ls -l"), false).expect("known flags");
        assert!(flags.has("interactive") && flags.has("tty"));
        assert_eq!((flags.last("workdir"), flags.words.len()), (Some("/d"), 3));
        let flags = of("rm").parse(&words("box -f"), true).expect("flags after words");
        assert!(flags.has("force"));
    }

    #[test]
    fn unknown_flags_are_named_as_docker_names_them() {
        assert_eq!(RUN.parse(&words("--nope img"), false), Err("unknown flag: --nope".to_owned()));
        assert_eq!(RUN.parse(&words("-Z img"), false), Err("unknown shorthand flag: 'Z' in -Z".to_owned()));
        assert_eq!(RUN.parse(&words("--name"), false), Err("flag needs an argument: --name".to_owned()));
    }
}
