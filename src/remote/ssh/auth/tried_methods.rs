//! What was tried, for the error message.

/// What was tried, for the error message.
#[derive(Default)]
pub(super) struct TriedMethods {
    pub(super) keys: Vec<String>,
    pub(super) agent_keys: usize,
    pub(super) password: bool,
    pub(super) prompt_answers: bool,
}

impl TriedMethods {
    pub(super) fn is_empty(&self) -> bool {
        !self.tried_keys() && !self.tried_answers()
    }

    pub(super) fn tried_keys(&self) -> bool {
        !self.keys.is_empty() || self.agent_keys > 0
    }

    pub(super) fn tried_answers(&self) -> bool {
        self.password || self.prompt_answers
    }

    pub(super) fn summary(&self) -> String {
        let mut list = self.keys.clone();
        list.extend((self.agent_keys > 0).then(|| format!("agent {} key{}", self.agent_keys, if self.agent_keys == 1 { "" } else { "s" })));
        list.extend(self.password.then(|| "a password".to_owned()));
        list.extend(self.prompt_answers.then(|| "an answer".to_owned()));
        list.join(", ")
    }

    pub(super) fn refusal_subject(&self) -> &'static str {
        match (self.tried_keys(), self.password, self.prompt_answers) {
            (true, false, false) => "key refused",
            (false, true, false) => "password refused",
            _ => "login refused",
        }
    }
}
