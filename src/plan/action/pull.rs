//! The image: there, or pulled.

use std::time::Duration;

use crate::inventory;
use crate::model::remote_command::{CommandOutput, RemoteCommand};
use crate::plan::action::{ActionResult, Execution, Observation};
use crate::plan::facts::HostFacts;
use crate::plan::host_context::HostContext;
use crate::text::shell_quote::quote;

/// How long a pull may take: tens of gigabytes from a private registry.
const PULL_TIMEOUT: Duration = Duration::from_secs(2 * 3600);

/// Gets the image where it is not there.
#[derive(Debug, Clone)]
pub struct PullImage {
    pub context: HostContext,
    pub image: String,
    pub policy: inventory::PullPolicy,
    /// The credentials for a login before the pull; the login is removed after it.
    pub login: Option<RegistryCredentials>,
}

/// A login at a private registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryCredentials {
    pub server: String,
    pub username: String,
    /// The name of the variable that holds the password, for people.
    pub password_variable: String,
    /// The password: handed over on standard input, never as an argument.
    pub password: String,
}

/// How long a look for it may take.
const INSPECT_TIMEOUT: Duration = Duration::from_secs(60);
/// The exit status where the image is not there and is not to be pulled.
const EXIT_IMAGE_MISSING: i32 = 78;
/// The exit status where no folder in memory was found for a login.
const EXIT_NO_MEMORY_DIR: i32 = 74;
/// Passes the lines of a pull on, up to the one with its exit status. It reads on when the connection is lost: docker ends where it cannot
/// write, and what it has downloaded would be lost to the next try.
const RELAY_PULL_SH: &str = "(\n\
    trap '' PIPE\n\
    while IFS= read -r l; do\n\
    case $l in 'pull ended 0') exit 0 ;; 'pull ended '*) exit 77 ;; esac\n\
    printf '%s\\n' \"$l\"\n\
    done 2>/dev/null\n\
    exit 77\n\
    ) || exit 77\n";
/// The exit status of a login that was refused.
const EXIT_LOGIN_FAILED: i32 = 76;

impl PullImage {
    pub(super) fn observe(&self, facts: &HostFacts) -> Observation {
        match (self.policy, &facts.image_id) {
            (inventory::PullPolicy::Always, _) => Observation::Needed("always".to_owned()),
            (_, Some(id)) => Observation::Satisfied(short_image_id(id)),
            (inventory::PullPolicy::Missing, None) => Observation::Needed("missing".to_owned()),
            (inventory::PullPolicy::Never, None) => Observation::Impossible(vec![self.missing_image_issue()]),
        }
    }

    /// What it does, for people.
    pub(super) fn title(&self) -> &'static str {
        if self.policy == inventory::PullPolicy::Never { "check the image" } else { "pull the image" }
    }

    fn missing_image_issue(&self) -> super::Issue {
        super::Issue::new(
            format!("the image {} is missing", self.image),
            "load the image there with `docker load`, or set container.pull: missing",
        )
    }

    /// A pull is carried out as one, a look whether the image is there as any script.
    pub(super) fn execution(&self) -> Execution {
        let command = self.command();
        if self.policy == inventory::PullPolicy::Never { Execution::Script(command) } else { Execution::PullImage(command) }
    }

    fn command(&self) -> RemoteCommand {
        let image = quote(&self.image);
        if self.policy == inventory::PullPolicy::Never {
            let script =
                format!("{}D image inspect --format '{{{{.Id}}}}' {image} || exit {EXIT_IMAGE_MISSING}\n", self.context.lock_check());
            return RemoteCommand::from_script(self.title(), script, INSPECT_TIMEOUT);
        }
        let (login, docker) = match &self.login {
            None => (String::new(), "D"),
            Some(login) => (
                // docker keeps a login in a folder: one in memory, for this pull alone. Where a KILL leaves it, the next script of this name
                // and host removes it.
                format!(
                    "m=; for c in {}; do grep -qE \"^[^ ]* $c (tmpfs|ramfs) \" /proc/mounts 2>/dev/null && [ -w \"$c\" ] && {{ m=$c; break; }}; done\n\
                     [ -n \"$m\" ] && d=$(mktemp -d \"$m/{}.XXXXXX\") || exit {EXIT_NO_MEMORY_DIR}\n\
                     trap 'rm -rf \"$d\"' EXIT; trap 'exit 1' HUP INT PIPE TERM\n\
                     printf %s {} | D --config \"$d\" login -u {} --password-stdin {} >/dev/null || exit {EXIT_LOGIN_FAILED}\n",
                    HostContext::MEMORY_DIRS,
                    self.context.login_dir_prefix(),
                    quote(&login.password),
                    quote(&login.username),
                    quote(&login.server),
                ),
                "D --config \"$d\"",
            ),
        };
        let script = format!(
            "{}{}{login}{{ {docker} pull {image}; printf '\\npull ended %d\\n' $?; }} | {RELAY_PULL_SH}\
             D image inspect --format '{{{{.Id}}}}' {image}\n",
            self.context.lock_check(),
            self.context.remove_logins_script(),
        );
        RemoteCommand::from_script(self.title(), script, PULL_TIMEOUT).with_masked_values(self.login.iter().map(|l| l.password.clone()))
    }

    pub(super) fn judge(&self, output: &CommandOutput) -> ActionResult {
        if output.is_success() {
            // The lines of the pull precede it.
            let id = short_image_id(output.stdout_text().trim().lines().next_back().unwrap_or_default());
            return if self.policy == inventory::PullPolicy::Never { ActionResult::unchanged(id) } else { ActionResult::changed(id) };
        }
        if output.exit_code == EXIT_IMAGE_MISSING {
            return ActionResult::Failed(self.missing_image_issue());
        }
        // Standard output has the lines of layers, never a reason.
        let message = match output.stderr.trim_ascii() {
            [] => "docker gave no reason".to_owned(),
            _ => drop_socket_addresses(&output.error_line()),
        };
        match (output.exit_code, &self.login) {
            (EXIT_NO_MEMORY_DIR, Some(_)) => return self.no_memory_dir_result(),
            (EXIT_LOGIN_FAILED, Some(login)) => return self.login_failed_result(login, &message),
            _ => {}
        }
        let hint = if message.contains("no space left") {
            format!("free space on {}: `docker system df` shows what docker uses", self.context.host)
        } else if message.contains("denied") || message.contains("unauthorized") || message.contains("authentication") {
            format!("set container.registry, log in on {} with `docker login`, or check the image's name", self.context.host)
        } else if message.contains("http: server gave HTTP response") || message.contains("certificate") {
            format!("add the registry to insecure-registries in /etc/docker/daemon.json on {}", self.context.host)
        } else {
            "check the image's name and that the host reaches its registry, or load the image there".to_owned()
        };
        ActionResult::failed(format!("could not pull {}: {message}", self.image), hint)
    }

    fn no_memory_dir_result(&self) -> ActionResult {
        let host = &self.context.host;
        ActionResult::failed(
            format!("no tmpfs on {host} for the registry password (tried /dev/shm and /run/user/<uid>)"),
            format!("mount one: `mount -t tmpfs tmpfs /dev/shm`; or load the image on {host} and remove container.registry"),
        )
    }

    fn login_failed_result(&self, login: &RegistryCredentials, message: &str) -> ActionResult {
        let RegistryCredentials { server, username, password_variable: variable, .. } = login;
        let lower = message.to_lowercase();
        if ["401", "unauthorized", "incorrect username or password", "denied"].iter().any(|word| lower.contains(word)) {
            return ActionResult::failed(
                format!("{server} refused the password of {username}: {message}"),
                format!("check the value of ${variable}, and container.registry.username"),
            );
        }
        ActionResult::failed(
            format!("could not log in to {server} as {username}: {message}"),
            format!("check container.registry.server, and that {} reaches it", self.context.host),
        )
    }
}

/// The first 12 digits of an image id, as docker shows it.
pub(crate) fn short_image_id(id: &str) -> String {
    id.trim_start_matches("sha256:").chars().take(12).collect()
}

/// Without Go's `read udp 127.0.0.1:52910->127.0.0.1:53: `, whose first port is another one each time: hosts with the same failure say the same.
fn drop_socket_addresses(text: &str) -> String {
    let is_addresses = |word: &str| word.contains("->") && word.ends_with(':');
    let mut words: Vec<&str> = Vec::new();
    for word in text.split(' ') {
        if is_addresses(word) && words.len() >= 2 && matches!(words[words.len() - 1], "udp" | "tcp") {
            words.truncate(words.len() - 2);
        } else {
            words.push(word);
        }
    }
    words.join(" ")
}

#[cfg(test)]
#[path = "pull_tests.rs"]
mod tests;
