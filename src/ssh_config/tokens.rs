//! `%` tokens, `~` and `${…}` in the values of ssh_config.
//!
//! The list of tokens a keyword takes is that of ssh_config(5), TOKENS.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha1::Digest as _;

use crate::ssh_config::name_rules;

/// Looks up a variable of the laptop by its name.
pub(crate) type EnvLookup = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// The tokens that most keywords take.
const COMMON_TOKENS: &str = "CdhijkLlnpru";

/// What `%` tokens stand for.
#[derive(Clone)]
pub(crate) struct PercentTokens<'a> {
    /// `%h`: the host that ssh connects to.
    pub(crate) host: &'a str,
    /// `%n`: the name as it was asked for.
    pub(crate) alias: &'a str,
    /// `%k`: the host key's name.
    pub(crate) host_key_name: &'a str,
    /// `%p`.
    pub(crate) port: u16,
    /// `%r`: the user on the host.
    pub(crate) user: &'a str,
    /// `%j`: the jump host, or nothing.
    pub(crate) jump_host: &'a str,
    /// `%u`: the user of the laptop.
    pub(crate) local_user: &'a str,
    /// `%d` and `~`.
    pub(crate) home: &'a Path,
    /// `%i`.
    pub(crate) uid: u32,
    /// `${…}`.
    pub(crate) env: &'a EnvLookup,
}

impl PercentTokens<'_> {
    /// Expands `~`, `~user`, `%` tokens and `${…}` in a path of IdentityFile, CertificateFile, IdentityAgent, UserKnownHostsFile,
    /// RevokedHostKeys. An error is a fragment that names what cannot be expanded.
    pub(crate) fn expand_path(&self, text: &str) -> Result<PathBuf, String> {
        // As OpenSSH: first `~`, so that a `~` out of a variable is none.
        let text = self.expand_tilde(text)?;
        self.expand(&text, COMMON_TOKENS, &[], true).map(PathBuf::from)
    }

    /// Expands the command of ProxyCommand. A name in it that a shell would interpret is refused, wherever it comes from.
    pub(crate) fn expand_proxy_command(&self, text: &str) -> Result<String, String> {
        self.check_shell_safe(text)?;
        self.expand(text, "hknpr", &[], false)
    }

    /// Expands the command of KnownHostsCommand. `key`: what `%f`, `%H`, `%I`, `%K` and `%t` stand for.
    pub(crate) fn expand_known_hosts_command(&self, text: &str, key: &[(char, &str)]) -> Result<String, String> {
        self.check_shell_safe(text)?;
        let name = key.iter().find(|(token, _)| *token == 'H').filter(|_| text.contains("%H"));
        name.map_or(Ok(()), |(_, name)| name_rules::validate_host(name)).map_err(|why| format!("%H: {why}"))?;
        self.expand(text, COMMON_TOKENS, key, true)
    }

    /// Whether every name that the text uses is allowed in a command. Names of this laptop and its user are what they are.
    fn check_shell_safe(&self, text: &str) -> Result<(), String> {
        for token in text.replace("%%", "").split('%').skip(1).filter_map(|rest| rest.chars().next()) {
            let judged = match token {
                'h' => name_rules::validate_host(self.host),
                'n' => name_rules::validate_host(self.alias),
                'k' => name_rules::validate_host(self.host_key_name),
                'j' => name_rules::validate_host(self.jump_host),
                'r' => name_rules::validate_user(self.user),
                _ => Ok(()),
            };
            judged.map_err(|why| format!("%{token}: {why}"))?;
        }
        Ok(())
    }

    /// Expands User, which must not refer to itself.
    pub(crate) fn expand_user(&self, text: &str) -> Result<String, String> {
        self.expand(text, "dhijkLlnpu", &[], true)
    }

    fn expand(&self, text: &str, allowed: &str, more: &[(char, &str)], variables: bool) -> Result<String, String> {
        let value = |token: char| match more.iter().find(|(known, _)| *known == token) {
            Some((_, value)) => Some((*value).to_owned()),
            None => self.token_value(token).filter(|_| allowed.contains(token)),
        };
        expand_tokens(text, value, variables.then_some(self.env))
    }

    fn token_value(&self, token: char) -> Option<String> {
        Some(match token {
            'h' => self.host.to_owned(),
            'n' => self.alias.to_owned(),
            'k' => self.host_key_name.to_owned(),
            'p' => self.port.to_string(),
            'r' => self.user.to_owned(),
            'j' => self.jump_host.to_owned(),
            'u' => self.local_user.to_owned(),
            'd' => self.home.to_string_lossy().into_owned(),
            'i' => self.uid.to_string(),
            'l' => local_hostname(),
            'L' => local_hostname().split('.').next().unwrap_or_default().to_owned(),
            // %j has been part of it since OpenSSH 9.6.
            'C' => {
                let all = format!("{}{}{}{}{}", local_hostname(), self.host, self.port, self.user, self.jump_host);
                sha1::Sha1::digest(all).iter().map(|b| format!("{b:02x}")).collect()
            }
            _ => return None,
        })
    }

    fn expand_tilde(&self, text: &str) -> Result<String, String> {
        let Some(rest) = text.strip_prefix('~') else { return Ok(text.to_owned()) };
        let (user, rest) = rest.split_once('/').unwrap_or((rest, ""));
        let home = home_dir(user, self.home).ok_or_else(|| format!("`{text}`: unknown user {user}"))?;
        Ok(home.join(rest.trim_start_matches('/')).to_string_lossy().into_owned())
    }
}

/// Replaces `%` tokens by their values, and variables where they are looked up. An error is a fragment that names what cannot be expanded.
pub(super) fn expand_tokens(text: &str, value: impl Fn(char) -> Option<String>, env: Option<&EnvLookup>) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['%', '$']) {
        let (before, after) = rest.split_at(at);
        out.push_str(before);
        if let Some((inner, env)) = after.strip_prefix("${").zip(env) {
            let (name, behind) = inner.split_once('}').ok_or_else(|| format!("`{text}`: missing `}}`"))?;
            out.push_str(&env(name).ok_or_else(|| format!("`{text}`: the variable {name} is not set"))?);
            rest = behind;
            continue;
        }
        let mut chars = after.chars();
        if chars.next() == Some('%') {
            let token = chars.next();
            let known = token.and_then(|token| if token == '%' { Some("%".to_owned()) } else { value(token) });
            let name = || token.map(String::from).unwrap_or_default();
            out.push_str(&known.ok_or_else(|| format!("`{text}`: unknown token %{}", name()))?);
        } else {
            out.push('$');
        }
        rest = chars.as_str();
    }
    out.push_str(rest);
    Ok(out)
}

/// The home folder of a user of the laptop; the empty name is the person's own.
pub(crate) fn home_dir(user: &str, own: &Path) -> Option<PathBuf> {
    if user.is_empty() {
        return Some(own.to_owned());
    }
    nix::unistd::User::from_name(user).ok().flatten().map(|found| found.dir)
}

fn local_hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn test_tokens(variables: &EnvLookup) -> PercentTokens<'_> {
        PercentTokens {
            host: "10.0.0.1",
            alias: "g1",
            host_key_name: "g1key",
            port: 22,
            user: "root",
            jump_host: "b1",
            local_user: "li",
            home: Path::new("/home/li"),
            uid: 1000,
            env: variables,
        }
    }

    #[test]
    fn tokens_expand_and_unknown_ones_fail() {
        let variables: EnvLookup = Arc::new(|name| (name == "KEYS").then(|| "/keys".to_owned()));
        let tokens = test_tokens(&variables);
        assert_eq!(tokens.expand_path("~/.ssh/id_%h_%n_%k%%").as_deref(), Ok(Path::new("/home/li/.ssh/id_10.0.0.1_g1_g1key%")));
        assert_eq!(tokens.expand_path("%d/%u-%i-%r-%p-%j").as_deref(), Ok(Path::new("/home/li/li-1000-root-22-b1")));
        assert_eq!(tokens.expand_path("${KEYS}/id$").as_deref(), Ok(Path::new("/keys/id$")));
        assert_eq!(tokens.expand_path("${NOPE}/id"), Err("`${NOPE}/id`: the variable NOPE is not set".to_owned()));
        assert_eq!(tokens.expand_path("/x/%X"), Err("`/x/%X`: unknown token %X".to_owned()));
        assert_eq!(tokens.expand_path("/x/%"), Err("`/x/%`: unknown token %".to_owned()));
        assert_eq!(tokens.expand_path("~root/id").as_deref(), Ok(Path::new("/root/id")));
        assert_eq!(tokens.expand_path("~no-such-user/id"), Err("`~no-such-user/id`: unknown user no-such-user".to_owned()));
    }

    #[test]
    fn each_keyword_allows_its_own_tokens() {
        let variables: EnvLookup = Arc::new(|_| None);
        let tokens = test_tokens(&variables);
        assert_eq!(tokens.expand_proxy_command("nc %h %p %n %r %% ${X}").as_deref(), Ok("nc 10.0.0.1 22 g1 root % ${X}"));
        assert!(tokens.expand_proxy_command("nc %d").is_err() && tokens.expand_user("%r").is_err());
        assert_eq!(tokens.expand_user("%u-%n").as_deref(), Ok("li-g1"));
        assert_eq!(tokens.expand_known_hosts_command("keys %H %h", &[('H', "[g1]:22")]).as_deref(), Ok("keys [g1]:22 10.0.0.1"));
        assert!(tokens.expand_path("%H").is_err());
    }

    #[test]
    fn shell_metacharacters_never_reach_a_command() {
        let variables: EnvLookup = std::sync::Arc::new(|_| None);
        let with = |host, alias, user| PercentTokens { host, alias, user, ..test_tokens(&variables) };
        assert_eq!(
            with("a;id", "g1", "root").expand_proxy_command("nc %h %p"),
            Err("%h: `a;id` holds `;`, which a shell would interpret".to_owned())
        );
        assert!(with("h", "$(id)", "root").expand_proxy_command("nc %n").is_err());
        assert!(
            with("h", "g1", "`id`").expand_proxy_command("nc -l%r").is_err()
                && with("h", "g1", "$HOME").expand_proxy_command("x %r").is_err()
        );
        assert!(with("-oX", "g1", "root").expand_known_hosts_command("%h", &[]).is_err());
        // Unused tokens do no harm, and a doubled % is no token.
        assert_eq!(with("a;id", "g1", "root").expand_proxy_command("nc %n %%h").as_deref(), Ok("nc g1 %h"));
    }

    #[test]
    fn connection_hash_covers_all_its_fields() {
        let variables: EnvLookup = Arc::new(|_| None);
        let all = format!("{}10.0.0.122rootb1", local_hostname());
        let hash: String = sha1::Sha1::digest(all).iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(test_tokens(&variables).expand_path("/s/%C").as_deref(), Ok(Path::new(&format!("/s/{hash}"))));
    }
}
