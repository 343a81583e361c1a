"""Sets of single English nouns that the facts of invented entities draw their values from.

The sets are disjoint, so a value tells its type; every word takes "an" exactly when it begins with
a vowel letter.
"""

TREES = """
  oak ash elm birch beech maple pine fir spruce larch cedar cypress juniper yew willow poplar
  aspen alder hazel hornbeam chestnut walnut linden sycamore plane rowan hawthorn blackthorn holly
  elder acacia mahogany teak ebony rosewood sandalwood balsa bamboo baobab banyan sequoia redwood
  hemlock hickory pecan magnolia mulberry sassafras tamarisk tamarack cottonwood boxwood laurel
  myrtle palm rattan ironwood satinwood kapok carob tupelo ginkgo
""".split()

ANIMALS = """
  badger beaver bear bison boar buffalo camel cat cheetah cow deer dog donkey elephant elk ferret
  fox gazelle giraffe goat gorilla hamster hare hedgehog hippopotamus horse hyena jackal jaguar
  kangaroo koala lemur leopard lion llama lynx marmot mole mongoose monkey moose mouse mule otter
  ox panda panther pig porcupine rabbit raccoon rat reindeer rhinoceros sheep shrew skunk sloth
  squirrel stoat tiger walrus weasel wolf wombat yak zebra antelope alpaca
""".split()

BIRDS = """
  albatross blackbird bullfinch bunting buzzard canary cassowary chaffinch condor cormorant crane
  crow cuckoo curlew dove duck eagle egret falcon finch flamingo goldfinch goose goshawk grouse
  gull hawk heron hoopoe ibis jackdaw jay kestrel kingfisher kite lapwing lark linnet macaw magpie
  nightingale nuthatch oriole osprey ostrich owl parrot partridge peacock pelican penguin petrel
  pheasant pigeon plover puffin quail raven robin rook sparrow starling stork swallow swan swift
  thrush toucan vulture wagtail warbler woodpecker wren
""".split()

FISH = """
  anchovy angelfish barbel barracuda bass blenny bream brill burbot carp catfish char chub
  clownfish cod dab dace dogfish eel flounder garfish goby grayling grouper gudgeon guppy gurnard
  haddock hake halibut herring lamprey ling loach lumpfish mackerel marlin minnow monkfish mullet
  perch pike pilchard piranha plaice pollock pufferfish ray roach rudd sailfish salmon sardine
  seahorse shad shark smelt snapper sole sprat stickleback stingray sturgeon sunfish swordfish
  tarpon tench tilapia trout tuna turbot whitefish whiting wrasse zander
""".split()

FLOWERS = """
  anemone aster azalea begonia bluebell buttercup camellia campion carnation celandine chamomile
  chrysanthemum clematis columbine cornflower cowslip crocus cyclamen daffodil dahlia daisy
  dandelion edelweiss foxglove freesia fuchsia gardenia gentian geranium gladiolus harebell
  heather hibiscus hollyhock honeysuckle hyacinth hydrangea iris jasmine larkspur lavender lilac
  lily lotus lupin marigold mimosa narcissus nasturtium oleander orchid pansy peony petunia phlox
  pimpernel poppy primrose rhododendron rose snapdragon snowdrop sunflower thistle tulip verbena
  violet wallflower wisteria yarrow zinnia
""".split()

PRODUCE = """
  apples apricots artichokes aubergines avocados bananas beans beetroots blackberries blueberries
  cabbages carrots cauliflowers cherries chicories clementines coconuts cranberries cucumbers
  currants damsons dates figs gooseberries gourds grapefruits grapes greengages guavas kumquats
  leeks lemons lentils limes loganberries lychees mangoes medlars melons mushrooms nectarines
  olives onions oranges papayas parsnips peaches pears peas peppers persimmons pineapples plums
  pomegranates potatoes pumpkins quinces radishes raspberries satsumas shallots strawberries
  swedes tangerines tomatoes truffles turnips yams
""".split()

STONES = """
  agate alabaster amethyst andesite anthracite aquamarine aventurine basalt beryl bloodstone
  calcite carnelian chalcedony chalk chert citrine conglomerate diabase diamond diorite dolerite
  dolomite feldspar flint fluorite gabbro garnet gneiss granite gypsum hematite jade jasper
  kyanite labradorite limestone magnetite malachite marble marl mica moonstone mudstone obsidian
  onyx opal peridot porphyry pumice pyrite quartz quartzite ruby rhyolite sandstone sapphire
  schist serpentine shale siltstone slate soapstone spinel sunstone topaz tourmaline travertine
  tuff zircon
""".split()

DISHES = """
  baklava biryani borscht bouillabaisse bouillon broth cassoulet ceviche cheesecake chili chowder
  chutney coleslaw cornbread couscous curry custard dal falafel fondue fudge gazpacho gingerbread
  gnocchi goulash granola guacamole gumbo haggis halva hummus jambalaya kedgeree kimchi lasagna
  macaroni marmalade marzipan meatloaf meringue minestrone moussaka muesli nougat paella pastrami
  pemmican pesto pilaf polenta porridge pudding ramen ratatouille ravioli risotto sauerkraut
  schnitzel semolina shortbread sorbet spaghetti stew strudel succotash sushi tabbouleh tapioca
  tempura tiramisu toffee trifle tzatziki
""".split()

TOOLS = """
  adze anvil auger awl axe billhook bodkin bradawl broom bucket caliper chisel clamp cleaver
  compass crowbar drill file fork funnel gimlet gouge hacksaw hammer hatchet hoe hook jack jigsaw
  ladder ladle lathe lever loom mallet mattock needle paintbrush pestle pickaxe pitchfork plough
  pulley punch rake rasp ruler sander saw scalpel scraper screwdriver scythe shovel shuttle sickle
  sieve spade spanner spatula spindle stapler trowel vice wedge wheelbarrow winch wrench
""".split()

CRAFTS = """
  apothecary armourer baker barber basketmaker blacksmith bookbinder bowyer brewer bricklayer
  butcher butler candlemaker carpenter cartwright chandler clockmaker cobbler confectioner cook
  cooper coppersmith cutler distiller draper dyer embroiderer engraver farrier fishmonger fletcher
  gardener gilder glassblower glazier glover goldsmith grocer gunsmith haberdasher hatter jeweller
  joiner lacemaker locksmith mason milliner miller nailer painter papermaker perfumer physician
  plasterer plumber potter printer roofer ropemaker saddler sailmaker sculptor scribe shoemaker
  silversmith smelter spinner stonecutter surgeon tailor tanner thatcher tinker turner upholsterer
  vintner weaver wheelwright woodcarver
""".split()

VIRTUES = """
  ambition bravery candour charity chastity cheerfulness cleanliness compassion confidence
  constancy courage courtesy creativity curiosity decency devotion dignity diligence discipline
  duty endurance equality fairness faith fidelity forgiveness fortitude freedom friendship
  frugality gallantry generosity gentleness grace gratitude harmony honesty hope hospitality
  humility independence industry innocence integrity justice kindness liberty loyalty mercy
  moderation modesty obedience optimism patience peace perseverance piety prudence punctuality
  reverence serenity simplicity sincerity sobriety steadfastness tact temperance tenacity thrift
  tolerance trust truth valour vigilance wisdom zeal
""".split()

COLOURS = """
  ashen auburn azure beige black blue bronze brown buff burgundy caramel carmine cerise cerulean
  charcoal chocolate cinnamon claret coral cream crimson cyan ecru flaxen golden green grey indigo
  inky ivory khaki madder magenta maroon mauve mustard navy ochre pewter periwinkle pink puce
  purple red rosy ruddy russet rust saffron scarlet sepia sienna silvery snowy tan taupe tawny
  teal turquoise ultramarine umber vermilion viridian white yellow
""".split()
