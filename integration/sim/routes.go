package sim

import (
	"fmt"
	"slices"

	"github.com/longshoremq/longshore/consumer"
)

// routedTopics are those of dead letters beside letterTopic, where the schedule has routes.
var routedTopics = []string{"dead0", "dead1"}

// LetterTopics are the topics of dead letters.
func (s Schedule) LetterTopics() []string {
	if s.Settings.Routes {
		return append([]string{letterTopic}, routedTopics...)
	}
	return []string{letterTopic}
}

func isLetterTopic(topic string) bool {
	return topic == letterTopic || slices.Contains(routedTopics, topic)
}

// makeable are the topics that may be missing until they are made: those that nobody reads.
func (s Schedule) makeable() []string {
	return slices.DeleteFunc(s.Outputs(), func(topic string) bool { return slices.Contains(retryTopics, topic) })
}

// made is the topic that a Make makes.
func (s Schedule) made(f Fault) string { return s.makeable()[f.N%len(s.makeable())] }

// isMissing says whether a topic is not there until it is made.
func (s Schedule) isMissing(topic string) bool {
	return slices.ContainsFunc(s.Steps, func(step Step) bool { return step.Fault.What == Make && s.made(step.Fault) == topic })
}

// there are the outputs that are there from the beginning.
func (s Schedule) there() []string { return slices.DeleteFunc(s.Outputs(), s.isMissing) }

// The handlers whose names DeadLetter.HandlerOf gives, by the number of the message.
const (
	thirdHandler  = "third"
	othersHandler = "others"
)

// handlerOf names the handler of a message, as a router does. Where it panics nobody is named.
func handlerOf(m *consumer.Message) string {
	switch n := numberOf(m.Value); {
	case n%7 == 6:
		panic("told to panic")
	case n%3 == 0:
		return thirdHandler
	}
	return othersHandler
}

// route gives dead letters their routes, where the settings say so.
func (s Schedule) route(to *consumer.DeadLetter) {
	if !s.Settings.Routes {
		return
	}
	to.HandlerOf = handlerOf
	to.Routes = []consumer.LetterRoute{
		{Class: "permanent", Topic: routedTopics[0]},
		{Class: "panic", Handler: othersHandler, Topic: letterTopic},
		{Handler: thirdHandler, Topic: routedTopics[1]},
		{Class: "panic", Topic: routedTopics[0]},
	}
}

// letterTopicOf is where the dead letter of a message belongs, said otherwise than in route.
func (s Schedule) letterTopicOf(message int, class string) string {
	unnamed := message%7 == 6
	switch third := message%3 == 0 && !unnamed; {
	case !s.Settings.Routes:
		return letterTopic
	case class == "permanent", class == "panic" && unnamed:
		return routedTopics[0]
	case third:
		return routedTopics[1]
	}
	return letterTopic
}

// readLetters counts the dead letters that are there when nobody writes any more.
func (r *run) readLetters() error {
	if !r.schedule.Settings.Letters {
		return nil
	}
	for _, topic := range r.schedule.LetterTopics() {
		letters, err := r.world.Messages(topic)
		if err != nil {
			return fmt.Errorf("reading the dead letters of %s: %w", topic, err)
		}
		for i := range letters {
			r.inLetters[numberOf(letters[i].Value)]++
		}
	}
	return nil
}

// judgeLeft: what was not handled, nor dropped by its broker, has its dead letter in a topic. That it was confirmed is not
// enough.
func (r *run) judgeLeft() {
	for n, s := range r.book.stored {
		if r.book.done[n] == 0 && r.book.letters[n] > 0 && r.inLetters[n] == 0 && s.goneAt.IsZero() {
			r.book.find("m%d was never handled, and its dead letter, which was confirmed, is not there", n)
		}
	}
}
