//! Answers to prompts of servers: a password once for all hosts, a code while it is valid, nothing twice to the same host.
//!
//! The rules are in docs/hosts.md, "Logging in".

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::remote::RemoteError;
use crate::remote::hop::Hop;
use crate::remote::ssh_settings::UserPrompt;
use crate::ssh_config::EnvLookup;

/// How long an answer other than a password is reused for further hosts: a code of RFC 6238 is valid for 30 s, and servers accept the
/// previous one.
const CODE_LIFETIME: Duration = Duration::from_secs(30);
/// Maximum length of server text shown.
const MAX_SHOWN_CHARS: usize = 300;

/// The user at the terminal, prompted one at a time.
pub(super) struct SerialPrompt {
    prompt: Arc<dyn UserPrompt>,
    lock: tokio::sync::Mutex<()>,
}

impl SerialPrompt {
    pub(super) fn new(prompt: Arc<dyn UserPrompt>) -> Self {
        SerialPrompt { prompt, lock: tokio::sync::Mutex::new(()) }
    }

    pub(super) fn show_notice(&self, text: &str) {
        self.prompt.show_notice(text);
    }

    /// Runs `ask` with exclusive access to the prompt.
    pub(super) async fn run_exclusive<T: Send + 'static>(&self, ask: impl FnOnce(&dyn UserPrompt) -> T + Send + 'static) -> Option<T> {
        let _turn = self.lock.lock().await;
        let prompt = self.prompt.clone();
        tokio::task::spawn_blocking(move || ask(prompt.as_ref())).await.ok()
    }
}

/// A question of a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum AuthQuestion {
    /// The password of the user.
    Password,
    /// Anything else, with the server's text.
    Other { text: String, echo: bool },
}

impl AuthQuestion {
    /// Classifies a keyboard-interactive prompt. A hidden prompt for a password is one, unless it asks for a new password or a code.
    pub(super) fn from_prompt(prompt: &str, echo: bool) -> Self {
        const PASSWORD_WORDS: [&str; 12] = [
            "password",
            "passwort",
            "kennwort",
            "mot de passe",
            "contraseña",
            "senha",
            "parola",
            "hasło",
            "пароль",
            "密码",
            "密碼",
            "パスワード",
        ];
        const CODE_WORDS: [&str; 9] = ["one-time", "one time", "otp", "code", "token", "verification", "new ", "retype", "again"];
        let text = sanitize_line(prompt);
        let low = text.to_lowercase();
        let password = !echo && PASSWORD_WORDS.iter().any(|w| low.contains(w)) && !CODE_WORDS.iter().any(|w| low.contains(w));
        if password { AuthQuestion::Password } else { AuthQuestion::Other { text, echo } }
    }
}

/// A server's text as one line without control characters.
pub(super) fn sanitize_line(text: &str) -> String {
    let joined = text.split(|c: char| c.is_control() || c.is_whitespace()).filter(|w| !w.is_empty()).collect::<Vec<_>>().join(" ");
    // Bidi controls could make text look different from what it is.
    let turns = |c: &char| !matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    joined.chars().filter(turns).take(MAX_SHOWN_CHARS).collect()
}

/// The answers to one prompt of one kind of host.
#[derive(Default)]
struct AnswerHistory {
    answers: Vec<RecordedAnswer>,
    declined: bool,
    /// A server accepted this code from one host and refused it from another: each host gets its own.
    single_use: bool,
}

struct RecordedAnswer {
    text: String,
    given_at: Instant,
    /// A host accepted it.
    accepted: bool,
}

/// An answer sent to a host.
#[derive(Debug, Clone)]
pub(super) struct SubmittedAnswer {
    pub(super) text: String,
    key: QuestionKey,
    index: usize,
}

type QuestionKey = (String, AuthQuestion);

/// The answers that one host refused.
pub(super) type RefusedAnswers = HashMap<QuestionKey, usize>;

/// The answers shared by a fleet.
pub(super) struct AuthAnswerCache {
    env: EnvLookup,
    histories: Mutex<HashMap<QuestionKey, Arc<tokio::sync::Mutex<AnswerHistory>>>>,
}

/// What a server asks, and what it says before.
#[derive(Clone, Copy)]
pub(super) struct AskedQuestion<'a> {
    pub question: &'a AuthQuestion,
    pub preface: &'a str,
}

impl AuthAnswerCache {
    pub(super) fn new(variables: EnvLookup) -> Self {
        AuthAnswerCache { env: variables, histories: Mutex::default() }
    }

    fn history(&self, key: &QuestionKey) -> Arc<tokio::sync::Mutex<AnswerHistory>> {
        self.histories.lock().unwrap_or_else(PoisonError::into_inner).entry(key.clone()).or_default().clone()
    }

    /// Whether an environment variable holds the password, so that no prompt is needed.
    pub(super) fn is_from_variable(hop: &Hop, answer: &SubmittedAnswer) -> bool {
        hop.password_variable.is_some() && answer.key.1 == AuthQuestion::Password
    }

    /// An answer that this host has not refused yet: a known one, or a new one from the user. `None` if there is none.
    ///
    /// # Errors
    /// If the variable of `ssh.password` is not set.
    pub(super) async fn find_or_ask(
        &self,
        hop: &Hop,
        AskedQuestion { question, preface }: AskedQuestion<'_>,
        refused: &RefusedAnswers,
        person: &SerialPrompt,
    ) -> Result<Option<SubmittedAnswer>, RemoteError> {
        let key = (answer_owner(hop), question.clone());
        let from = refused.get(&key).map_or(0, |n| n + 1);
        let given = |number, text: &str| Some(SubmittedAnswer { text: text.to_owned(), key: key.clone(), index: number });
        if let (AuthQuestion::Password, Some(name)) = (question, &hop.password_variable) {
            let value = (self.env)(name).ok_or_else(|| {
                RemoteError::invalid_config(
                    format!("a password is required, but the variable {name} (ssh.password) is not set"),
                    format!("export {name}=…"),
                )
            })?;
            return Ok(if from == 0 { given(0, &value) } else { None });
        }
        let slot = self.history(&key);
        let mut known = slot.lock().await;
        let may = |a: &RecordedAnswer| *question == AuthQuestion::Password || (!known.single_use && a.given_at.elapsed() < CODE_LIFETIME);
        let open: Vec<usize> = (from..known.answers.len()).filter(|n| known.answers.get(*n).is_some_and(may)).collect();
        let accepted = open.iter().find(|n| known.answers.get(**n).is_some_and(|a| a.accepted));
        if let Some((number, answer)) = accepted.or(open.last()).and_then(|n| Some((*n, known.answers.get(*n)?))) {
            return Ok(given(number, &answer.text));
        }
        if hop.auth.batch_mode || known.declined {
            return Ok(None);
        }
        let (shown, echo, again) = (prompt_text(hop, question), matches!(question, AuthQuestion::Other { echo: true, .. }), from > 0);
        let (name, preface) = (hop.name.clone(), preface.to_owned());
        let reply = person.run_exclusive(move |prompt| {
            if again {
                prompt.show_notice(&format!("{name}: not accepted"));
            }
            if !preface.is_empty() {
                prompt.show_notice(&format!("{name}: {preface}"));
            }
            if echo { prompt.ask_line(&shown) } else { prompt.ask_secret(&shown) }
        });
        let Some(text) = reply.await.flatten() else {
            known.declined = true;
            return Ok(None);
        };
        known.answers.push(RecordedAnswer { text: text.clone(), given_at: Instant::now(), accepted: false });
        Ok(given(known.answers.len() - 1, &text))
    }

    /// Marks these answers as accepted.
    pub(super) async fn mark_accepted(&self, answers: &[SubmittedAnswer]) {
        for one in answers {
            let slot = self.history(&one.key);
            if let Some(answer) = slot.lock().await.answers.get_mut(one.index) {
                answer.accepted = true;
            }
        }
    }

    /// Marks these answers, sent together, as refused. Answers that no other host accepted are blamed; if all were accepted elsewhere, the
    /// codes are, and then each host gets its own.
    pub(super) async fn mark_refused(&self, answers: &[SubmittedAnswer], refused: &mut RefusedAnswers) {
        let mut fresh = Vec::new();
        for one in answers {
            let slot = self.history(&one.key);
            let accepted = slot.lock().await.answers.get(one.index).is_some_and(|a| a.accepted);
            fresh.extend((!accepted).then_some(one));
        }
        let codes: Vec<&SubmittedAnswer> = answers.iter().filter(|g| g.key.1 != AuthQuestion::Password).collect();
        let blamed = if !fresh.is_empty() {
            fresh
        } else if !codes.is_empty() {
            for code in &codes {
                self.history(&code.key).lock().await.single_use = true;
            }
            codes
        } else {
            answers.iter().collect()
        };
        refused.extend(blamed.into_iter().map(|g| (g.key.clone(), g.index)));
    }
}

/// Owner of the answers: the user for all hosts of the inventory, each jump host for itself.
fn answer_owner(hop: &Hop) -> String {
    if hop.is_jump { format!("{}@{}", hop.user, hop.name) } else { hop.user.clone() }
}

fn prompt_text(hop: &Hop, question: &AuthQuestion) -> String {
    let place = format!("{}@{}", hop.user, hop.name);
    let place = if hop.is_jump { place } else { format!("{place} and every host with the same prompt") };
    match question {
        AuthQuestion::Password => format!("password for {place}"),
        AuthQuestion::Other { text, .. } => format!("{} ({place})", text.trim_end_matches([':', ' '])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn password_prompts_are_distinguished_from_codes() {
        for text in ["Password: ", "li@gpu01's password:", "Passwort:", "(current) UNIX password: ", "密码："] {
            assert_eq!(AuthQuestion::from_prompt(text, false), AuthQuestion::Password, "{text}");
        }
        for text in
            ["Verification code: ", "One-time password (OATH) for `li': ", "New password: ", "Retype password:", "PIN+token:", "Duo:"]
        {
            assert!(matches!(AuthQuestion::from_prompt(text, false), AuthQuestion::Other { echo: false, .. }), "{text}");
        }
        assert!(matches!(AuthQuestion::from_prompt("Password: ", true), AuthQuestion::Other { echo: true, .. }));
    }

    #[test]
    fn server_text_is_stripped_of_control_chars() {
        assert_eq!(sanitize_line("\u{1b}[2J\r\nhello\t\u{202e}dlrow\u{7}  "), "[2J hello dlrow");
        assert_eq!(sanitize_line(&"x".repeat(9999)).len(), MAX_SHOWN_CHARS);
    }
}
