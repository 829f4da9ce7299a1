//! docker's command line: flags before the first word, as docker's own parser reads them. Pure.

/// Which flags a command knows: `long` or `short=long`, separated by spaces.
pub(super) struct FlagSpec {
    /// Flags that take no value (`--init`, `--init=false`).
    pub(super) switches: &'static str,
    /// Flags that take one.
    pub(super) with_value: &'static str,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct ParsedFlags {
    values: Vec<(&'static str, String)>,
    /// Everything from the first word on.
    pub(super) positional: Vec<String>,
}

impl ParsedFlags {
    /// Whether a plain flag is set.
    pub(super) fn has(&self, name: &str) -> bool {
        self.last_value(name).is_some_and(|value| value != "false")
    }

    /// The last value given.
    pub(super) fn last_value(&self, name: &str) -> Option<&str> {
        self.values.iter().rev().find(|(n, _)| *n == name).map(|(_, value)| value.as_str())
    }

    /// Every value given, in order.
    pub(super) fn all_values(&self, name: &str) -> Vec<String> {
        self.values.iter().filter(|(n, _)| *n == name).map(|(_, value)| value.clone()).collect()
    }
}

fn find_flag(list: &'static str, wanted: &str, short: bool) -> Option<&'static str> {
    list.split_whitespace().find_map(|entry| {
        let (s, long) = entry.split_once('=').unwrap_or(("", entry));
        ((short && s == wanted) || (!short && long == wanted)).then_some(long)
    })
}

impl FlagSpec {
    /// Reads `args`. With `anywhere`, flags may also follow words (docker's commands that take no command of their own).
    pub(super) fn parse(&self, args: &[String], anywhere: bool) -> Result<ParsedFlags, String> {
        let mut flags = ParsedFlags::default();
        let mut rest = args.iter();
        while let Some(word) = rest.next() {
            if word == "--" {
                flags.positional.extend(rest.cloned());
                break;
            } else if let Some(long) = word.strip_prefix("--") {
                let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value.to_owned())));
                if let Some(name) = find_flag(self.switches, name, false) {
                    flags.values.push((name, value.unwrap_or_else(|| "true".to_owned())));
                } else if let Some(name) = find_flag(self.with_value, name, false) {
                    let value = value.or_else(|| rest.next().cloned()).ok_or(format!("flag needs an argument: --{name}"))?;
                    flags.values.push((name, value));
                } else {
                    return Err(format!("unknown flag: --{name}"));
                }
            } else if word.len() > 1 && word.starts_with('-') {
                self.parse_short_flags(word, &mut rest, &mut flags)?;
            } else {
                flags.positional.push(word.clone());
                if !anywhere {
                    flags.positional.extend(rest.cloned());
                    break;
                }
            }
        }
        Ok(flags)
    }

    /// `-dit`, `-eK=V`, `-e K=V`, `-t=5`.
    fn parse_short_flags<'a>(
        &self,
        word: &str,
        rest: &mut impl Iterator<Item = &'a String>,
        flags: &mut ParsedFlags,
    ) -> Result<(), String> {
        let mut letters = word.trim_start_matches('-');
        while let Some(letter) = letters.chars().next() {
            let after = letters.get(letter.len_utf8()..).unwrap_or_default();
            if let Some(name) = find_flag(self.switches, letter.encode_utf8(&mut [0; 4]), true) {
                flags.values.push((name, "true".to_owned()));
                letters = after;
            } else if let Some(name) = find_flag(self.with_value, letter.encode_utf8(&mut [0; 4]), true) {
                let attached = after.strip_prefix('=').unwrap_or(after);
                let value = if attached.is_empty() { rest.next().cloned() } else { Some(attached.to_owned()) };
                flags.values.push((name, value.ok_or(format!("flag needs an argument: '{letter}' in {word}"))?));
                return Ok(());
            } else {
                return Err(format!("unknown shorthand flag: '{letter}' in {word}"));
            }
        }
        Ok(())
    }
}

/// `docker run` and `docker create`.
pub(super) const RUN_FLAGS: FlagSpec = FlagSpec {
    switches: "d=detach rm init privileged i=interactive t=tty read-only q=quiet P=publish-all no-healthcheck oom-kill-disable sig-proxy \
               disable-content-trust help",
    with_value: "name l=label label-file mount v=volume e=env env-file network net gpus shm-size ulimit device cap-add cap-drop \
                 stop-timeout stop-signal restart log-driver log-opt u=user w=workdir entrypoint pull security-opt ipc pid h=hostname \
                 add-host cpuset-cpus cpus c=cpu-shares m=memory memory-swap memory-reservation oom-score-adj tmpfs cidfile runtime \
                 group-add platform userns uts pids-limit sysctl annotation dns storage-opt p=publish expose cgroupns cgroup-parent \
                 device-cgroup-rule volumes-from a=attach domainname health-cmd ip isolation link mac-address network-alias blkio-weight \
                 cpuset-mems kernel-memory detach-keys volume-driver",
};

/// `docker exec`.
pub(super) const EXEC_FLAGS: FlagSpec =
    FlagSpec { switches: "d=detach i=interactive t=tty privileged", with_value: "e=env env-file w=workdir u=user detach-keys" };

/// Commands that differ little: their flags together would be wrong, so one table each.
pub(super) fn flags_of_command(command: &str) -> FlagSpec {
    match command {
        "ps" => FlagSpec { switches: "a=all q=quiet no-trunc l=latest s=size", with_value: "f=filter format n=last" },
        "inspect" => FlagSpec { switches: "s=size", with_value: "type f=format" },
        "stop" => FlagSpec { switches: "", with_value: "t=time timeout s=signal" },
        "rm" => FlagSpec { switches: "f=force v=volumes l=link", with_value: "" },
        "logs" => FlagSpec { switches: "f=follow t=timestamps details", with_value: "n=tail since until" },
        "start" => FlagSpec { switches: "a=attach i=interactive", with_value: "" },
        "pull" => FlagSpec { switches: "q=quiet a=all-tags disable-content-trust", with_value: "platform" },
        "login" => FlagSpec { switches: "password-stdin", with_value: "u=username p=password" },
        "version" | "info" => FlagSpec { switches: "", with_value: "f=format" },
        _ => FlagSpec { switches: "", with_value: "" },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split_args(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn run_flags_stop_at_image() {
        let flags = RUN_FLAGS
            .parse(&split_args("-d --name x -eA=1 -e B=2 --init --gpus=all --label k=v img:1 sh -c -x"), false)
            .expect("known flags");
        assert!(flags.has("detach") && flags.has("init") && !flags.has("rm"));
        assert_eq!((flags.last_value("name"), flags.last_value("gpus")), (Some("x"), Some("all")));
        assert_eq!(flags.all_values("env"), ["A=1", "B=2"]);
        assert_eq!(flags.positional, ["img:1", "sh", "-c", "-x"]);
    }

    #[test]
    fn short_flags_combine_and_take_values() {
        let flags = EXEC_FLAGS.parse(&split_args("-it -w /d box ls -l"), false).expect("known flags");
        assert!(flags.has("interactive") && flags.has("tty"));
        assert_eq!((flags.last_value("workdir"), flags.positional.len()), (Some("/d"), 3));
        let flags = flags_of_command("rm").parse(&split_args("box -f"), true).expect("flags after words");
        assert!(flags.has("force"));
    }

    #[test]
    fn unknown_flags_use_docker_messages() {
        assert_eq!(RUN_FLAGS.parse(&split_args("--nope img"), false), Err("unknown flag: --nope".to_owned()));
        assert_eq!(RUN_FLAGS.parse(&split_args("-Z img"), false), Err("unknown shorthand flag: 'Z' in -Z".to_owned()));
        assert_eq!(RUN_FLAGS.parse(&split_args("--name"), false), Err("flag needs an argument: --name".to_owned()));
    }
}
