//! The image: there, or pulled.

use std::time::Duration;

use crate::inventory;
use crate::plan::action::{Seen, Verdict};
use crate::plan::facts::HostFacts;
use crate::plan::site::Site;
use crate::shell::{Command, Output, quote};

/// How long a pull may take: tens of gigabytes from a private registry.
const DEADLINE: Duration = Duration::from_secs(2 * 3600);

/// Gets the image where it is not there.
#[derive(Debug, Clone)]
pub struct Pull {
    /// Where.
    pub site: Site,
    /// Image reference.
    pub image: String,
    /// When.
    pub when: inventory::Pull,
    /// Who logs in before; the login is forgotten with the pull.
    pub login: Option<Login>,
}

/// A login at a private registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    /// The registry.
    pub server: String,
    /// Who.
    pub username: String,
    /// The name of the variable that holds the password, for people.
    pub variable: String,
    /// The password: handed over on standard input, never as an argument.
    pub password: String,
}

/// How long a look for it may take.
const LOOK: Duration = Duration::from_secs(60);
/// The exit status where the image is not there and is not to be pulled.
const NOT_THERE: i32 = 78;
/// The exit status where no folder in memory was found for a login.
const NO_MEMORY: i32 = 74;
/// The exit status of a login that was refused.
const NO_LOGIN: i32 = 76;

impl Pull {
    pub(super) fn observe(&self, facts: &HostFacts) -> Seen {
        match (self.when, &facts.image) {
            (inventory::Pull::Always, _) => Seen::Needed("always".to_owned()),
            (_, Some(id)) => Seen::Satisfied(short(id)),
            (inventory::Pull::Missing, None) => Seen::Needed("the image is not there".to_owned()),
            (inventory::Pull::Never, None) => Seen::Impossible(vec![self.missing()]),
        }
    }

    /// What it does, for people.
    pub(super) fn title(&self) -> &'static str {
        if self.when == inventory::Pull::Never { "look for the image" } else { "pull the image" }
    }

    fn missing(&self) -> super::Trouble {
        super::Trouble::new(
            format!("the image {} is not on {}", self.image, self.site.host),
            "load it there, or set container.pull: missing",
        )
    }

    pub(super) fn command(&self) -> Command {
        let image = quote(&self.image);
        if self.when == inventory::Pull::Never {
            let script = format!("{}D image inspect --format '{{{{.Id}}}}' {image} || exit {NOT_THERE}\n", self.site.guard());
            return Command::sh(self.title(), script, LOOK);
        }
        let (login, docker) = match &self.login {
            None => (String::new(), "D"),
            Some(login) => (
                // docker keeps a login in a folder: one in memory, for this pull alone. Where a KILL leaves it, the next script of this name
                // and host removes it.
                format!(
                    "m=; for c in {}; do grep -qE \"^[^ ]* $c (tmpfs|ramfs) \" /proc/mounts 2>/dev/null && [ -w \"$c\" ] && {{ m=$c; break; }}; done\n\
                     [ -n \"$m\" ] && d=$(mktemp -d \"$m/{}.XXXXXX\") || exit {NO_MEMORY}\n\
                     trap 'rm -rf \"$d\"' EXIT; trap 'exit 1' HUP INT PIPE TERM\n\
                     printf %s {} | D --config \"$d\" login -u {} --password-stdin {} >/dev/null || exit {NO_LOGIN}\n",
                    Site::MEMORY,
                    self.site.login(),
                    quote(&login.password),
                    quote(&login.username),
                    quote(&login.server),
                ),
                "D --config \"$d\"",
            ),
        };
        let script = format!(
            "{}{}{login}{docker} pull -q {image} >&2 || exit 77\nD image inspect --format '{{{{.Id}}}}' {image}\n",
            self.site.guard(),
            self.site.forget_logins(),
        );
        Command::sh(self.title(), script, DEADLINE).masking(self.login.iter().map(|l| l.password.clone()))
    }

    pub(super) fn judge(&self, output: &Output) -> Verdict {
        if output.ok() {
            let id = short(output.text().trim());
            return if self.when == inventory::Pull::Never { Verdict::fine(id) } else { Verdict::changed(id) };
        }
        if output.code == NOT_THERE {
            return Verdict::Failed(self.missing());
        }
        let says = output.complaint();
        match (output.code, &self.login) {
            (NO_MEMORY, Some(_)) => return self.no_memory(),
            (NO_LOGIN, Some(login)) => return self.no_login(login, &says),
            _ => {}
        }
        let hint = if says.contains("no space left") {
            format!("free space on {}: `docker system df` shows what docker uses", self.site.host)
        } else if says.contains("denied") || says.contains("unauthorized") || says.contains("authentication") {
            format!("set container.registry, log in on {} with `docker login`, or check the image's name", self.site.host)
        } else if says.contains("http: server gave HTTP response") || says.contains("certificate") {
            format!("add the registry to insecure-registries in /etc/docker/daemon.json on {}", self.site.host)
        } else {
            format!("check the image's name and that {} reaches its registry, or load the image there", self.site.host)
        };
        Verdict::failed(format!("could not pull {}: {says}", self.image), hint)
    }

    fn no_memory(&self) -> Verdict {
        let host = &self.site.host;
        Verdict::failed(
            format!("no folder in memory on {host} for the registry's password (looked for a tmpfs at /dev/shm and /run/user/<uid>)"),
            format!("mount one there: `mount -t tmpfs tmpfs /dev/shm`; or load the image on {host} and leave container.registry out"),
        )
    }

    fn no_login(&self, login: &Login, says: &str) -> Verdict {
        let Login { server, username, variable, .. } = login;
        let lower = says.to_lowercase();
        if ["401", "unauthorized", "incorrect username or password", "denied"].iter().any(|word| lower.contains(word)) {
            return Verdict::failed(
                format!("{server} refused the password of {username}: {says}"),
                format!("check the value of ${variable}, and container.registry.username"),
            );
        }
        Verdict::failed(
            format!("could not log in to {server} as {username}: {says}"),
            format!("check container.registry.server, and that {} reaches it", self.site.host),
        )
    }
}

/// The first 12 digits of an image id, as docker shows it.
pub fn short(id: &str) -> String {
    id.trim_start_matches("sha256:").chars().take(12).collect()
}
