//! A prompt with scripted answers that records questions and notices.

use std::sync::Mutex;

use orchestrate::remote::UserPrompt;

/// Gives its answers in order.
pub(crate) struct ScriptedPrompt {
    answers: Mutex<Vec<Option<String>>>,
    questions: Mutex<Vec<String>>,
    notices: Mutex<Vec<String>>,
}

impl ScriptedPrompt {
    /// A prompt that answers no question.
    pub(crate) fn without_answers() -> Self {
        Self::with_answers(&[])
    }

    pub(crate) fn with_answers(answers: &[&str]) -> Self {
        let answers = answers.iter().rev().map(|a| Some((*a).to_owned())).collect();
        ScriptedPrompt { answers: Mutex::new(answers), questions: Mutex::default(), notices: Mutex::default() }
    }

    pub(crate) fn questions(&self) -> Vec<String> {
        self.questions.lock().expect("not poisoned").clone()
    }

    pub(crate) fn notices(&self) -> Vec<String> {
        self.notices.lock().expect("not poisoned").clone()
    }
}

impl UserPrompt for ScriptedPrompt {
    fn ask_secret(&self, what: &str) -> Option<String> {
        self.questions.lock().expect("not poisoned").push(what.to_owned());
        self.answers.lock().expect("not poisoned").pop().flatten()
    }

    fn ask_line(&self, what: &str) -> Option<String> {
        self.ask_secret(&format!("in the open: {what}"))
    }

    fn show_notice(&self, text: &str) {
        self.notices.lock().expect("not poisoned").push(text.to_owned());
    }
}
